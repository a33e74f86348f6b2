"""One point of a curve: a scored log, and what distinguishes it from others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from earvoice.evaluation.clock import Clock
from earvoice.evaluation.instance import Instance
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.report import Report
from earvoice.evaluation.run.run_folder import LOG_NAME
from earvoice.evaluation.scoring import ScoringOptions, score_log

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class CurvePoint:
    """A scored log.

    Attributes:
        name: of its folder; ``POLICY:KEY=VALUE,...@KEY=VALUE,...`` where a sweep wrote it.
        report: its scores.
        instances: what was scored.
        language: of the target, BCP-47; empty if nobody knows.
    """

    name: str
    report: Report
    instances: tuple[Instance, ...]
    language: str

    @property
    def policy(self) -> str:
        """The policy's name; the whole name of a folder that no sweep wrote."""
        return re.split("[:@]", self.name, maxsplit=1)[0]

    @property
    def choices(self) -> Mapping[str, str]:
        """Parameters and options by their keys."""
        assignments = re.split("[:@,]", self.name)[1:]
        return dict(part.split("=", 1) for part in assignments if "=" in part)

    @property
    def bleu(self) -> float | None:
        """BLEU; None without references."""
        return None if self.report.quality is None else self.report.quality.bleu

    @property
    def core_seconds_per_hour(self) -> float | None:
        """Computation of the services for an hour of audio, in seconds of one core."""
        factor = self.report.score.real_time_factor
        return None if factor is None else factor * _SECONDS_PER_HOUR

    def latency(self, metric: str, clock: Clock) -> float | None:
        """Return a corpus score; None if the log does not know the clock."""
        mean = self.report.score.rows[metric].get(clock)
        return None if mean is None else mean.value


def find_points(folder: Path) -> list[Path]:
    """Return the folders with a log in and below a folder, in order of their names.

    Raises:
        LogError: there are none.
    """
    found = sorted(log.parent for log in folder.rglob(LOG_NAME))
    if not found:
        raise LogError(str(folder), f"no {LOG_NAME} in it or below it")
    return found


def read_point(folder: Path, options: ScoringOptions) -> CurvePoint:
    """Score the log in a folder.

    Raises:
        LogError: it cannot be read.
        ResegmenterError: the re-segmenter is not installed.
    """
    scored = score_log(folder, options)
    return CurvePoint(folder.resolve().name, scored.report, scored.instances, scored.language)
