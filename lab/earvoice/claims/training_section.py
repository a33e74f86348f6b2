"""What the page says of checkpoints whose trainings are compared."""

from __future__ import annotations

from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.training import judge_truncation
from earvoice.claims.plan import TRAINING_CURVES, TRUNCATION_CURVES, offline
from earvoice.claims.setting_table import distinguish
from earvoice.claims.table import MISSING, describe_finding, number, table
from earvoice.claims.training_study import TrainingStudy
from earvoice.evaluation.replay.setting import ReplaySetting


def describe_trainings(study: TrainingStudy) -> list[str]:
    """Return BLEU and LAAL of every checkpoint and setting; nothing if there is none."""
    if not study.checkpoints:
        return []
    settings = [
        ("offline", offline()),
        *((name, setting) for name, curve in TRAINING_CURVES.items() for setting in curve),
    ]
    header = ("checkpoint", "hash", "inputs", *(f"{n}: {distinguish(s)}" for n, s in settings))
    rows = [
        (
            checkpoint.label,
            f"`{study.facts[checkpoint.label].model_hash[:12]}`",
            str(checkpoint.inputs),
            *(_point(checkpoint, setting) for _, setting in settings),
        )
        for checkpoint in study.checkpoints
    ]
    notes = [
        line
        for checkpoint in study.checkpoints
        if (note := study.facts[checkpoint.label].note)
        for line in ("", f"{checkpoint.label}: {note}")
    ]
    return ["### Trainings", "", _TEXT, "", *table(header, rows), *notes]


_TEXT = "BLEU, and LAAL in seconds. Checkpoints of one claim translated the same inputs."


def describe_truncation(study: TrainingStudy) -> list[str]:
    """Return what truncated inputs change: every setting, then the answers; nothing if not run."""
    if not study.truncated:
        return []
    whole, truncated = study.truncated
    settings = [("offline", offline())] + [
        (name, setting) for name, curve in TRUNCATION_CURVES.items() for setting in curve
    ]
    rows = [
        (f"{name}: {distinguish(setting)}", _point(whole, setting), _point(truncated, setting))
        for name, setting in settings
    ]
    findings = [
        (finding.text, describe_finding(finding)) for finding in judge_truncation(whole, truncated)
    ]
    return [
        "## Truncated inputs in training",
        "",
        _TRUNCATION_TEXT,
        "",
        *table(("setting", whole.label, truncated.label), rows),
        "",
        *table(("compared", "BLEU"), findings),
    ]


_TRUNCATION_TEXT = (
    "A question of our own, no claim of a paper: does a training help that hears some inputs only "
    "up to a moment, and writes what part of the translation that is? It agrees if it brings at "
    "least 1 BLEU at equal LAAL, and 0 lies outside the interval. BLEU, and LAAL in seconds."
)


def _point(experiment: Experiment, setting: ReplaySetting) -> str:
    if not experiment.has(setting):
        return MISSING
    bleu = number(float(experiment.bleu(setting)[0]), 1)
    return f"{bleu}, {number(float(experiment.latency_ms(setting)[0]) / 1000, 1)} s"
