"""The translations of a test set in several number formats, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from earvoice.client.errors import AudioSourceError
from earvoice.evaluation.precision.offline_translator import OfflineTranslator, read_features
from earvoice.evaluation.quality import score_quality
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.precision import Precision, PrecisionTrial


@dataclass(frozen=True)
class PrecisionResult:
    """One number format on a test set.

    Attributes:
        bleu: of its hypotheses.
        trial: beside fp32.
    """

    bleu: float
    trial: PrecisionTrial


class PrecisionComparison:
    """A model and a test set.

    Args:
        model: checkpoint directory.
        language: BCP-47 tag of the translation.
        sources: recordings with references.
    """

    def __init__(self, model: Path, language: str, sources: Sequence[SourceRecording]) -> None:
        self._model = model
        self._language = language
        self._sources = sources
        self._references = [source.reference for source in sources]

    def compare(self, precisions: Sequence[Precision]) -> list[PrecisionResult]:
        """Return fp32 and then the others.

        Raises:
            AudioSourceError: a recording cannot be read, or is too short for a frame.
            InvalidAudioError: a value is no amplitude.
            ModelError: the checkpoint is not usable.
            QualityError: sacreBLEU is missing.
        """
        exact = self._hypotheses("fp32")
        exact_bleu = score_quality(exact, self._references, self._language).bleu
        results = [PrecisionResult(exact_bleu, self._trial("fp32", 1.0, 0.0))]
        for precision in precisions:
            found = self._hypotheses(precision)
            bleu = score_quality(found, self._references, self._language).bleu
            equal = sum(a == b for a, b in zip(exact, found, strict=True)) / len(exact)
            trial = self._trial(precision, equal, round(bleu - exact_bleu, 4))
            results.append(PrecisionResult(bleu, trial))
        return results

    def _trial(self, precision: Precision, equal: float, difference: float) -> PrecisionTrial:
        return PrecisionTrial(
            precision, self._language, len(self._sources), round(equal, 4), difference
        )

    def _hypotheses(self, precision: Precision) -> list[str]:
        torch.set_num_threads(1)
        checkpoint = load_checkpoint(self._model, precision=precision)
        translator = OfflineTranslator(checkpoint, self._language)
        progress = RunProgress.on_stderr(precision, len(self._sources), 0)
        hypotheses = []
        for source in self._sources:
            features = read_features(source, checkpoint)
            if not len(features):
                raise AudioSourceError(f"{source.path} is shorter than a frame of 25 ms")
            hypotheses.append(translator.translate(features))
            progress.count(source.duration_ms)
        progress.close()
        return hypotheses
