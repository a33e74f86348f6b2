"""What the page says of checkpoints whose trainings are compared."""

from __future__ import annotations

from earvoice.claims.experiment import Experiment
from earvoice.claims.plan import TRAINING_CURVES, offline
from earvoice.claims.setting_table import distinguish
from earvoice.claims.table import MISSING, number, table
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


def _point(experiment: Experiment, setting: ReplaySetting) -> str:
    if not experiment.has(setting):
        return MISSING
    bleu = number(float(experiment.bleu(setting)[0]), 1)
    return f"{bleu}, {number(float(experiment.latency_ms(setting)[0]) / 1000, 1)} s"
