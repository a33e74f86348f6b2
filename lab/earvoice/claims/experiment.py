"""All results of one checkpoint, with the draws that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from earvoice.claims.curve import Curve
from earvoice.claims.result import METRICS, Metric, Result
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Resampling

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Attention:
    """Where a decoder layer looks.

    Attributes:
        layer: from 1.
        last_share: of each input's attention, the share on the last state, mean over its rows.
        previous_share: the same on the last but one.
        even_share: what each state would get if all were alike.
    """

    layer: int
    last_share: Floats
    previous_share: Floats
    even_share: Floats


@dataclass(frozen=True)
class Experiment:
    """One checkpoint's results on one test set.

    Attributes:
        label: short name for tables.
        results: by setting; those that were not run are missing.
        layers: of the model's decoder.
        heads: of each of them.
        attention: by layer; empty if it was not measured.
    """

    label: str
    results: Mapping[ReplaySetting, Result]
    layers: int
    heads: int
    attention: Sequence[Attention] = ()

    @cached_property
    def resampling(self) -> Resampling:
        """Return the draws of this test set's inputs."""
        return Resampling(self.inputs)

    @property
    def inputs(self) -> int:
        """How many inputs each setting translated."""
        return len(next(iter(self.results.values())).audio_ms)

    @cached_property
    def distinct(self) -> list[ReplaySetting]:
        """Return the settings without those that released the same words at the same times.

        A parameter's default may be among its studied values, and drafts change computation only.
        """
        seen: set[bytes] = set()
        kept = []
        for setting, result in self.results.items():
            told = (
                result.statistics,
                *(result.latencies_ms[metric, "ideal"] for metric in METRICS),
            )
            content = b"".join(values.tobytes() for values in told)
            if content not in seen:
                seen.add(content)
                kept.append(setting)
        return kept

    def has(self, *settings: ReplaySetting) -> bool:
        """Tell whether all of these were run."""
        return all(setting in self.results for setting in settings)

    def bleu(self, setting: ReplaySetting) -> Floats:
        """Return BLEU in every draw."""
        return self.resampling.bleu(self.results[setting].statistics)

    def latency_ms(
        self, setting: ReplaySetting, metric: Metric = "LAAL", clock: Clock = "ideal"
    ) -> Floats:
        """Return a latency in every draw."""
        return self.resampling.mean(self.results[setting].latencies_ms[metric, clock])

    def word_lag_ms(self, setting: ReplaySetting) -> Floats:
        """Return the true word lag in every draw."""
        return self.resampling.mean(self.results[setting].word_lags_ms)

    def attended_lag_ms(self, setting: ReplaySetting) -> Floats:
        """Return the word lag that the service measures, in every draw."""
        return self.resampling.mean(self.results[setting].attended_lags_ms)

    def curve(
        self, settings: Sequence[ReplaySetting], metric: Metric = "LAAL", clock: Clock = "ideal"
    ) -> Curve | None:
        """Return the curve through those of the settings that were run; None for fewer than 2."""
        known = [setting for setting in settings if setting in self.results]
        if len(known) < 2:  # noqa: PLR2004 - one point is no curve
            return None
        return Curve.through(
            [self.latency_ms(setting, metric, clock) for setting in known],
            [self.bleu(setting) for setting in known],
        )

    def overhead_curve(self, settings: Sequence[ReplaySetting]) -> Curve | None:
        """Return AL and the overhead on the clock `simuleval`; None for fewer than 2 settings."""
        known = [setting for setting in settings if setting in self.results]
        if len(known) < 2:  # noqa: PLR2004 - one point is no curve
            return None
        return Curve.through(
            [self.latency_ms(setting, "AL") for setting in known],
            [self.resampling.mean(self.results[it].overheads_ms["simuleval"]) for it in known],
        )
