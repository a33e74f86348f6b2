"""The measurements of a run in ``curve.csv``, and which of them is the best."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.training.metric import Score

_COLUMNS = ("step", "elapsed_s", "set", "word_error_rate", "bleu")


class Curve:
    """A CSV table with a row for each measurement of each set."""

    def __init__(self, path: Path) -> None:
        """Open a curve; the file is made with the first measurement."""
        self._path = path

    def add(self, step: int, elapsed_s: float, scores: Sequence[Score]) -> None:
        """Append what was measured after `step` optimiser steps and `elapsed_s` of training."""
        new = not self._path.exists()
        with self._path.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            if new:
                writer.writerow(_COLUMNS)
            for score in scores:
                errors = f"{score.word_error_rate:.4f}"
                writer.writerow((step, round(elapsed_s), score.name, errors, score.bleu))

    def qualities(self) -> dict[int, float]:
        """Return the quality of each step measured, in the order of the file.

        It is the mean BLEU of the sets that have references; of a run that cannot translate
        yet, less the mean word error rate in per cent.
        """
        rows: dict[int, list[dict[str, str]]] = {}
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    rows.setdefault(int(row["step"]), []).append(row)
        return {step: _quality(of_step) for step, of_step in rows.items()}

    def best_step(self) -> int | None:
        """Return the step of the best measurement; of equal ones the later."""
        qualities = self.qualities()
        return max(qualities, key=lambda step: (qualities[step], step), default=None)

    def since_best(self) -> int:
        """Return how many measurements came after the best one."""
        steps = sorted(self.qualities())
        best = self.best_step()
        return 0 if best is None else len(steps) - 1 - steps.index(best)


def _quality(rows: Sequence[dict[str, str]]) -> float:
    scores = [float(row["bleu"]) for row in rows if row["bleu"]]
    if scores:
        return sum(scores) / len(scores)
    return -100 * sum(float(row["word_error_rate"]) for row in rows) / len(rows)
