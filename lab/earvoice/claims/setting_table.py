"""One setting's numbers as a row: for the page, and all of them for ``results.tsv``."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from earvoice.claims.experiment import Experiment
from earvoice.claims.result import METRICS, Result
from earvoice.claims.table import number, with_interval
from earvoice.client.policy import HoldN, LocalAgreement, Offline, SharedPrefix
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import estimate

POINT_HEADER = (
    "setting",
    "BLEU",
    "LAAL",
    "AL",
    "true lag",
    "LAAL `simuleval`",
    "LAAL `true`",
    "overhead",
    "core-s per audio hour",
    "length ratio",
)
"""Latencies are in ms; the overhead is the mean of e - d on the clock ``simuleval``."""

_CLOCKS: tuple[Clock, ...] = ("ideal", "simuleval", "true")


def describe_point(experiment: Experiment, setting: ReplaySetting, family: str) -> tuple[str, ...]:
    """Return the cells of a row under ``POINT_HEADER``."""
    result = experiment.results[setting]
    lags_ms = (
        experiment.latency_ms(setting),
        experiment.latency_ms(setting, "AL"),
        experiment.word_lag_ms(setting),
        experiment.latency_ms(setting, "LAAL", "simuleval"),
        experiment.latency_ms(setting, "LAAL", "true"),
        experiment.resampling.mean(result.overheads_ms["simuleval"]),
    )
    return (
        f"{family}: {distinguish(setting)}",
        with_interval(estimate(experiment.bleu(setting)), "BLEU"),
        *(number(float(lag_ms[0]), 0) for lag_ms in lags_ms),
        number(_core_seconds_per_hour(result), 0),
        number(_length_ratio(result), 2),
    )


def distinguish(setting: ReplaySetting) -> str:
    """Return what tells a setting from others of its family."""
    if isinstance(setting.policy, Offline):
        return f"beam {setting.beam_size}" if setting.beam_size else "greedy"
    if isinstance(setting.policy, LocalAgreement | SharedPrefix | HoldN):
        return f"{setting.segment_ms} ms"
    parameters = (
        (field.name, getattr(setting.policy, field.name)) for field in fields(setting.policy)
    )
    return ", ".join(
        f"{name} {value}" for name, value in parameters if value and name != "detection"
    )


def list_numbers(experiment: Experiment, setting: ReplaySetting) -> dict[str, str]:
    """Return everything that is known of a setting, by column of ``results.tsv``."""
    result = experiment.results[setting]
    bleu = estimate(experiment.bleu(setting))
    cells = {
        "checkpoint": experiment.label,
        "setting": setting.name,
        "inputs": str(experiment.inputs),
        "silent": str(int((result.output_words == 0).sum())),
        "BLEU": number(bleu.value, 2),
        "BLEU low": number(bleu.low, 2),
        "BLEU high": number(bleu.high, 2),
    }
    for clock in _CLOCKS:
        for metric in METRICS:
            lag_ms = experiment.latency_ms(setting, metric, clock)[0]
            cells[f"{metric} {clock} ms"] = number(float(lag_ms), 1)
    cells["true lag ms"] = number(float(experiment.word_lag_ms(setting)[0]), 1)
    for clock in _CLOCKS[1:]:
        overhead_ms = experiment.resampling.mean(result.overheads_ms[clock])[0]
        cells[f"overhead {clock} ms"] = number(float(overhead_ms), 1)
    cells["core-s per audio hour"] = number(_core_seconds_per_hour(result), 1)
    cells["length ratio"] = number(_length_ratio(result), 3)
    cells["words a release"] = number(
        float(result.output_words.sum() / np.maximum(1, result.releases.sum())), 2
    )
    return cells


def _core_seconds_per_hour(result: Result) -> float:
    return float(3600 * result.computation_ms.sum() / result.audio_ms.sum())


def _length_ratio(result: Result) -> float:
    """Words of the output over words of the references."""
    return float(result.output_words.sum() / result.reference_words.sum())
