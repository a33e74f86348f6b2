"""Does a model keep its quality in fewer bits? Whole recordings, greedy search, no policy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from earvoice.client.audio_file import AudioFile
from earvoice.client.errors import AudioSourceError
from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import Prompt, block_of, least_end_probability
from earvoice.encoder.audio import Resampler, decode_audio
from earvoice.evaluation.bootstrap import Bootstrap, Floats, estimate, sentence_statistics
from earvoice.evaluation.run_folder import RunProgress
from earvoice.evaluation.source_set import SourceRecording
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.precision import Precision, PrecisionTrial
from earvoice.models.vocabulary import EOS

_CHUNK_MS = 1000
_SPARE_TOKENS = 20
_TOKENS_PER_STATE = 2
"""More than any real translation has, so that a loop ends."""


def read_features(source: SourceRecording, checkpoint: Checkpoint) -> torch.Tensor:
    """Return a recording's normalised features, [frames, 80] float32."""
    with AudioFile(source.path) as file:
        audio = b"".join(file.chunks(_CHUNK_MS))
        rate_hz = file.audio.sample_rate_hz
        samples = decode_audio(file.audio, audio)
    resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
    resampled = resampler.outputs(samples, 0, resampler.total_count(len(samples)))
    return checkpoint.open_features()(resampled)


def translate_offline(checkpoint: Checkpoint, language: str, features: torch.Tensor) -> str:
    """[frames, 80] normalised features, frames ≥ 1 → the text by greedy search."""
    tags = {target.code: target.tag for target in checkpoint.config.target_languages}
    vocabulary, tag = checkpoint.target_vocabulary, tags[language]
    forced = (EOS, vocabulary.id_of(tag)) if tag else (EOS,)
    strategy = SearchStrategy(checkpoint.network.transformer_decoder)
    states = checkpoint.network.encoder.encode(features).states
    block = block_of(states.numpy(), final=True)
    least = least_end_probability(checkpoint.config.decoder.least_empty_probability, block, ())
    opening = Prompt(forced, (), 1, forbid_end=False, least_end_probability=least)
    run, progress = strategy.begin(block, opening)
    tokens = [choice.token for choice in progress.tokens]
    most = _SPARE_TOKENS + _TOKENS_PER_STATE * len(states)
    most = min(most, checkpoint.config.decoder.max_new_tokens or most)
    while tokens[-1] != EOS and len(tokens) < most:
        tokens += [choice.token for choice in strategy.step([run])[0].tokens]
    return vocabulary.decode([token for token in tokens if token != EOS])


def compare_precisions(
    model: Path, language: str, sources: Sequence[SourceRecording], precisions: Sequence[Precision]
) -> list[tuple[float, PrecisionTrial]]:
    """Translate recordings with references; return BLEU and trial for fp32, then for the others."""
    references = [source.reference for source in sources]
    bootstrap = Bootstrap(len(sources))
    exact: list[str] = []
    exact_draws: Floats = np.zeros(())
    results: list[tuple[float, PrecisionTrial]] = []
    for precision in ("fp32", *precisions):
        found = _hypotheses(model, language, sources, precision)
        draws = bootstrap.bleu(sentence_statistics(found, references, language))
        if precision == "fp32":
            exact, exact_draws = found, draws
        equal = sum(a == b for a, b in zip(exact, found, strict=True)) / len(exact)
        gain = estimate(draws - exact_draws)
        trial = PrecisionTrial(
            precision,
            language,
            len(sources),
            round(equal, 4),
            round(gain.value, 4),
            round(gain.low, 4),
        )
        results.append((float(draws[0]), trial))
    return results


def _hypotheses(
    model: Path, language: str, sources: Sequence[SourceRecording], precision: Precision
) -> list[str]:
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(model, precision=precision)
    hypotheses = []
    with closing(RunProgress(precision, len(sources), 0)) as progress:
        for source in sources:
            features = read_features(source, checkpoint)
            if not len(features):
                raise AudioSourceError(f"{source.path} is shorter than a frame of 25 ms")
            hypotheses.append(translate_offline(checkpoint, language, features))
            progress.count(source.duration_ms)
    return hypotheses
