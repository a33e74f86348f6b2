"""From clips and recordings to cached log-mel features."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.clip_store import ClipStore
from earvoice.corpus.feature_store import FeatureClip, FeatureStore
from earvoice.corpus.recording import (
    VOICES,
    list_recordings,
    list_training_voices,
    read_recording,
)
from earvoice.corpus.transcription import DOMAIN, read_transcribed
from earvoice.models.frontend import INT16_SCALE, Filterbank

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

CLIP_FOLDERS = ("clips", "again-clips", "third-clips", "neural-clips", "engine-clips")


def log_mel(samples: NDArray[np.float32]) -> NDArray[np.float16]:
    """Compute Kaldi's log-mel filterbank, with the models' own frontend.

    Args:
        samples: float32 [samples] in [-1, 1] at 16 kHz.

    Returns:
        float16 [frames, 80], 10 ms a frame, not normalised.
    """
    features = Filterbank()(torch.from_numpy(samples * np.float32(INT16_SCALE)))
    return np.asarray(features.numpy(), dtype=np.float16)


def extract(corpus: Path, speech: Path) -> None:
    """Fill ``features/`` from the clips and the recordings; complete shards are left alone.

    What has been spoken anew since is computed anew.
    """
    store = FeatureStore(corpus / "features")
    for folder in CLIP_FOLDERS:
        clips = ClipStore(corpus / folder)
        for shard in clips.shards():
            name = f"{folder}-{shard:05d}"
            if not store.has(name, clips.written_s(shard)):
                _extract_shard(clips, shard, store, name)
                sys.stdout.write(f"{name}\n")
                sys.stdout.flush()
    voices = list_training_voices(speech)
    transcribed = {sentence.key for sentence in read_transcribed(corpus)}
    # What has got words is there twice: `VOICES` is the babble of others.
    with_words = [path for path in voices if f"{DOMAIN}-{path.stem}" in transcribed]
    _extract_recordings("ljspeech", list_recordings(speech, "ljspeech"), store, have_words=True)
    _extract_recordings(VOICES, voices, store, have_words=False)
    if with_words:
        _extract_recordings(DOMAIN, with_words, store, have_words=True)


def _extract_shard(clips: ClipStore, shard: int, store: FeatureStore, name: str) -> None:
    rows, features = [], []
    for clip, wave in clips.read(shard):
        frames = log_mel(wave.astype(np.float32) / INT16_SCALE)
        rows.append(FeatureClip(clip.key, clip.sentence, clip.voice, len(frames)))
        features.append(frames)
    store.write(name, rows, features)


def _extract_recordings(
    name: str, paths: Sequence[Path], store: FeatureStore, *, have_words: bool
) -> None:
    if store.has(name):
        return
    rows, features = [], []
    for path in paths:
        frames = log_mel(read_recording(path))
        key = f"{name}-{path.stem}"
        rows.append(FeatureClip(key, key if have_words else "", name, len(frames)))
        features.append(frames)
    store.write(name, rows, features)
    sys.stdout.write(f"{name}\n")
