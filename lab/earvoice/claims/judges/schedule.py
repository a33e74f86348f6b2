"""Claims 12 (Papi 2022) and 17 (Nguyen 2021): wait-k's detection and the (k, s, N) schedule."""

from __future__ import annotations

from itertools import chain

import numpy as np

from earvoice.claims import plan
from earvoice.claims.answer import Answer, Finding
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import bleu_above, difference, untested
from earvoice.evaluation.resampling import Estimate

_FAST_MS = 1000.0
_SLOW_MS = 4000.0


def judge_detection(experiment: Experiment) -> list[Finding]:
    """Ask whether fixed detection is better at low latency, adaptive at high."""
    fixed, adaptive = plan.WAIT_K["fixed"], plan.WAIT_K["adaptive"]
    low, high = (0.0, 0.5), (0.5, 1.0)
    return [
        bleu_above(experiment, "fixed less adaptive, lower half", fixed, adaptive, part=low),
        bleu_above(experiment, "adaptive less fixed, upper half", adaptive, fixed, part=high),
    ]


def judge_span(experiment: Experiment) -> list[Finding]:
    """Ask whether the (k, s, N) settings reach from 1 to 4 s of AL."""
    settings = list(chain(*plan.SCHEDULE.values()))
    texts = "lowest AL of the (k, s, N) settings", "highest AL"
    if not experiment.has(*settings):
        return [untested(text) for text in texts]
    lags_ms = np.stack([experiment.latency_ms(setting, "AL") for setting in settings])
    return [
        difference(texts[0], lags_ms.min(0), "ms", _answer_fast),
        difference(texts[1], lags_ms.max(0), "ms", _answer_slow),
    ]


def _answer_fast(lowest: Estimate) -> Answer:
    if lowest.high <= _FAST_MS:
        return Answer.AGREES
    return Answer.DISAGREES if lowest.low > _FAST_MS else Answer.UNDECIDED


def _answer_slow(highest: Estimate) -> Answer:
    if highest.low >= _SLOW_MS:
        return Answer.AGREES
    return Answer.DISAGREES if highest.high < _SLOW_MS else Answer.UNDECIDED
