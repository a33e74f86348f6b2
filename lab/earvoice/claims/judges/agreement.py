"""Claims 1 to 4 (Polák 2022): local agreement, shared prefix, Hold-n, initial wait."""

from __future__ import annotations

from earvoice.claims import plan
from earvoice.claims.answer import SMALLEST_BLEU, Finding, above, equal
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import bleu_above, bleu_equal, difference, untested

_LEAST_LAG_MS = 100.0


def judge_chunk_size(experiment: Experiment) -> list[Finding]:
    """Ask whether LA-2 in chunks of 250 ms is far below 1000 ms, and slower chunks are later."""
    smallest, _, middle, largest = plan.AGREEMENT[2]
    text = "LA-2 at 1000 ms less LA-2 at 250 ms"
    later = "LAAL of LA-2 at 2000 ms less that at 250 ms"
    if not experiment.has(smallest, middle, largest):
        return [untested(text), untested(later)]
    gain = experiment.bleu(middle) - experiment.bleu(smallest)
    delay_ms = experiment.latency_ms(largest) - experiment.latency_ms(smallest)
    return [
        difference(text, gain, "BLEU", lambda it: above(it, SMALLEST_BLEU)),
        difference(later, delay_ms, "ms", lambda it: above(it, _LEAST_LAG_MS)),
    ]


def judge_agreement_depth(experiment: Experiment) -> list[Finding]:
    """Ask whether LA-2, LA-3 and LA-4 lie on one curve."""
    return [
        bleu_equal(experiment, f"LA-{n} less LA-{m}", plan.AGREEMENT[n], plan.AGREEMENT[m])
        for n, m in ((3, 2), (4, 2), (4, 3))
    ]


def judge_shared_prefix(experiment: Experiment) -> list[Finding]:
    """Ask whether LA-2 is above SP-2, SP-2 above Hold-6, and SP-1 below SP-2."""
    shared = plan.SHARED_PREFIX
    return [
        bleu_above(experiment, "LA-2 less SP-2, beam 5", plan.AGREEMENT_BEAM, shared[2]),
        bleu_above(experiment, "SP-2 less Hold-6, beam 5", shared[2], plan.HOLD_BEAM),
        bleu_above(experiment, "LA-2 less Hold-6, both greedy", plan.AGREEMENT[2], plan.HOLD),
        bleu_above(experiment, "SP-2 less SP-1, beam 5", shared[2], shared[1]),
    ]


def judge_initial_wait(experiment: Experiment) -> list[Finding]:
    """Ask what a first chunk of 2 s does to BLEU and AL of LA-2."""
    findings = []
    for plain, waited in zip(plan.AGREEMENT[2], plan.AGREEMENT_WAITED, strict=False):
        text = f"LA-2 at {plain.segment_ms} ms with a first chunk of 2 s less without"
        if not experiment.has(plain, waited):
            findings.append(untested(text))
            continue
        gain = experiment.bleu(waited) - experiment.bleu(plain)
        delay_ms = experiment.latency_ms(waited, "AL") - experiment.latency_ms(plain, "AL")
        findings += [
            difference(text, gain, "BLEU", lambda it: equal(it, SMALLEST_BLEU)),
            difference(f"{text}: AL", delay_ms, "ms", lambda it: above(it, _LEAST_LAG_MS)),
        ]
    return findings
