"""Whole recordings through a checkpoint, token by token, without a policy."""

from __future__ import annotations

import torch

from earvoice.client.audio_file import AudioFile
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import Opening
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.encoder.audio_format import AudioEncoding, AudioFormat
from earvoice.encoder.resampler import Resampler
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.models.checkpoint import Checkpoint
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.vocabulary import EOS

_CHUNK_MS = 1000
_SPARE_TOKENS = 20
_TOKENS_PER_STATE = 2
"""More than any translation has: a loop ends there."""


def read_features(source: SourceRecording, checkpoint: Checkpoint) -> torch.Tensor:
    """Return a recording's features, [frames, 80] float32, normalised.

    Raises:
        AudioSourceError: it cannot be read.
        InvalidAudioError: a value is no amplitude.
    """
    with AudioFile(source.path) as file:
        audio = b"".join(file.chunks(_CHUNK_MS))
        rate_hz = file.audio.sample_rate_hz
        encoding = AudioEncoding[file.audio.encoding.upper()]
        samples = AudioFormat(encoding, rate_hz, file.audio.channel_count).decode(audio)
    resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
    resampled = resampler.outputs(samples, 0, resampler.total_count(len(samples)))
    return checkpoint.open_features().accept(resampled)


class OfflineTranslator:
    """Greedy search over whole utterances.

    Args:
        checkpoint: on the CPU.
        language: BCP-47 tag that it writes.
    """

    def __init__(self, checkpoint: Checkpoint, language: str) -> None:
        self._encoder = checkpoint.network.encoder
        self._vocabulary = checkpoint.target_vocabulary
        self._strategy = SearchStrategy(checkpoint.network.decoder, torch.device("cpu"))
        tags = {target.code: target.tag for target in checkpoint.config.target_languages}
        tag = tags[language]
        self._forced = (EOS, self._vocabulary.id_of(tag)) if tag else (EOS,)

    def translate(self, features: torch.Tensor) -> str:
        """[frames, 80] normalised features, frames ≥ 1 → the most probable text, token by token."""
        states = self._encoder.encode(features).states
        count, width = states.shape
        data = states.numpy().astype("<f4", copy=False).tobytes()
        block = StateBlock(StatesId(0, 1), count, width, ElementType.FLOAT32, data)
        run, progress = self._strategy.begin(block, Opening(self._forced, (), 1, forbid_end=False))
        tokens = [choice.token for choice in progress.choices]
        while tokens[-1] != EOS and len(tokens) < _SPARE_TOKENS + _TOKENS_PER_STATE * count:
            tokens += [choice.token for choice in self._strategy.step([run])[0].choices]
        return self._vocabulary.decode([token for token in tokens if token != EOS])
