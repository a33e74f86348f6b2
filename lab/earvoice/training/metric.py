"""BLEU and word error rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sacrebleu.metrics.bleu import BLEU

from earvoice.evaluation.word_errors import count_errors

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Score:
    """Quality on one set.

    Attributes:
        name: the set.
        clips: how many clips.
        word_error_rate: of the CTC transcript, 0 to above 1.
        bleu: of the translation, 0 to 100; None where no translation exists.
        brevity_penalty: BLEU's, None likewise.
    """

    name: str
    clips: int
    word_error_rate: float
    bleu: float | None = None
    brevity_penalty: float | None = None

    def __str__(self) -> str:
        """One line for people."""
        words = f"{self.name}: {self.clips} clips, WER {100 * self.word_error_rate:.1f} %"
        if self.bleu is None or self.brevity_penalty is None:
            return words
        return f"{words}, BLEU {self.bleu:.1f} (brevity {self.brevity_penalty:.2f})"


def word_error_rate(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Word edits over reference words, summed over all sentences."""
    edits = sum(
        count_errors(hypothesis.split(), reference.split())
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return edits / max(1, sum(len(reference.split()) for reference in references))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, float, str]:
    """Return sacreBLEU's score, its brevity penalty and its signature."""
    metric = BLEU()
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return float(result.score), float(result.bp), str(metric.get_signature())
