"""From folders of logs to results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from earvoice.claims.experiment import Attention, Experiment
from earvoice.claims.facts import Facts
from earvoice.claims.plan import TRUNCATION, plan
from earvoice.claims.result import measure
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.scoring import ScoringOptions, read_instances

SETTINGS_FOLDER = "settings"
WORDS_FILE = "words.jsonl"
ATTENTION_FILE = "attention.json"
LOG_FILE = "instances.log"


def read_experiment(folder: Path) -> tuple[Experiment, Facts]:
    """Return a checkpoint's results.

    Args:
        folder: of the results, with what `run_plan` writes.

    Raises:
        LogError: a log cannot be read, or has another number of inputs.
        OSError: there are no facts.
        ValueError: the facts, or what was measured of attention, cannot be read; or no setting
            was run.
    """
    facts = Facts.read(folder)
    attention = _read_attention(folder / ATTENTION_FILE)
    return _read(folder, plan(facts.layers, facts.heads), facts, attention), facts


def read_training(folder: Path) -> tuple[Experiment, Facts]:
    """Return a checkpoint's results in the settings that compare trainings.

    Args:
        folder: of the results, with what `run_plan` writes.

    Raises:
        LogError: a log cannot be read, or has another number of inputs.
        OSError: there are no facts.
        ValueError: the facts cannot be read, or no setting was run.
    """
    facts = Facts.read(folder)
    return _read(folder, TRUNCATION, facts, []), facts


def _read(
    folder: Path,
    settings: Sequence[ReplaySetting],
    facts: Facts,
    attention: Sequence[Attention],
) -> Experiment:
    results = {}
    options = ScoringOptions(language=facts.target_language, words=folder / WORDS_FILE)
    for setting in settings:
        path = folder / SETTINGS_FOLDER / setting.name / LOG_FILE
        if path.exists():
            log, language = read_instances(path, options)
            results[setting] = measure(setting, log.instances, language)
    if not results:
        raise ValueError(f"{folder} holds no result of the plan")
    return Experiment(facts.label, results, facts.layers, facts.heads, attention)


def _read_attention(path: Path) -> list[Attention]:
    """Return each layer's; none if it was not measured."""
    if not path.exists():
        return []
    return [
        Attention(
            layer=int(layer["layer"]),
            last_share=np.array(layer["last_share"], dtype=np.float64),
            previous_share=np.array(layer["previous_share"], dtype=np.float64),
            even_share=np.array(layer["even_share"], dtype=np.float64),
        )
        for layer in json.loads(path.read_text(encoding="utf8"))
    ]
