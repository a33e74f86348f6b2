"""From folders of logs to results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from earvoice.claims.experiment import Attention, Experiment
from earvoice.claims.facts import Facts
from earvoice.claims.plan import SNAPSHOT, plan
from earvoice.claims.result import Result, measure
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.scoring import ScoringOptions, read_instances

SETTINGS_FOLDER = "settings"
WORDS_FILE = "words.jsonl"
ATTENTION_FILE = "attention.json"
LOG_FILE = "instances.log"


def read_experiment(
    folder: Path, snapshot_folders: Sequence[Path] = ()
) -> tuple[Experiment, Facts]:
    """Return a checkpoint's results.

    Args:
        folder: of the results, with what `run_plan` writes.
        snapshot_folders: results of the training's snapshots, the youngest first.

    Raises:
        LogError: a log cannot be read, or has another number of inputs.
        OSError: there are no facts.
        ValueError: the facts, or what was measured of attention, cannot be read.
    """
    facts = Facts.read(folder)
    settings = plan(facts.layers, facts.heads)
    words = folder / WORDS_FILE
    experiment = Experiment(
        facts.label,
        _read_results(folder / SETTINGS_FOLDER, settings, facts, words),
        facts.layers,
        facts.heads,
        _read_attention(folder / ATTENTION_FILE),
        [
            _read_results(snapshot / SETTINGS_FOLDER, SNAPSHOT, facts, words)
            for snapshot in snapshot_folders
        ],
    )
    return experiment, facts


def _read_results(
    folder: Path, settings: Sequence[ReplaySetting], facts: Facts, words: Path
) -> Mapping[ReplaySetting, Result]:
    results = {}
    for setting in settings:
        path = folder / setting.name / LOG_FILE
        if path.exists():
            options = ScoringOptions(language=facts.target_language, words=words)
            log, language = read_instances(path, options)
            results[setting] = measure(setting, log.instances, language)
    return results


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
