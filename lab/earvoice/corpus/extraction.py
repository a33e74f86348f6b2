"""From clips and recordings to cached log-mel features."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.clip_store import ClipStore
from earvoice.corpus.feature_store import FeatureClip, FeatureStore
from earvoice.corpus.recording import VOICES, is_held_out_voice, list_recordings, read_recording
from earvoice.corpus.transcription import DOMAIN, key_of, read_transcribed
from earvoice.models.frontend import INT16_SCALE, Filterbank

if TYPE_CHECKING:
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
    """Fill ``features/`` from the clips and the recordings; complete shards are left alone."""
    store = FeatureStore(corpus / "features")
    for folder in CLIP_FOLDERS:
        clips = ClipStore(corpus / folder)
        for shard in clips.shards():
            name = f"{folder}-{shard:05d}"
            if not store.has(name):
                _extract_shard(clips, shard, store, name)
                sys.stdout.write(f"{name}\n")
                sys.stdout.flush()
    for name in ("ljspeech", VOICES):
        if not store.has(name):
            _extract_recordings(speech, name, store)
            sys.stdout.write(f"{name}\n")
    transcribed = {sentence.key for sentence in read_transcribed(corpus)}
    if transcribed and not store.has(DOMAIN):
        _extract_transcribed(speech, transcribed, store)
        sys.stdout.write(f"{DOMAIN}\n")


def _extract_shard(clips: ClipStore, shard: int, store: FeatureStore, name: str) -> None:
    rows, features = [], []
    for clip, wave in clips.read(shard):
        frames = log_mel(wave.astype(np.float32) / INT16_SCALE)
        rows.append(FeatureClip(clip.key, clip.sentence, clip.voice, len(frames)))
        features.append(frames)
    store.write(name, rows, features)


def _extract_recordings(speech: Path, name: str, store: FeatureStore) -> None:
    rows, features = [], []
    for path in list_recordings(speech, name):
        if name == VOICES and is_held_out_voice(path):
            continue
        frames = log_mel(read_recording(path))
        sentence = f"ljspeech-{path.stem}" if name == "ljspeech" else ""
        rows.append(FeatureClip(f"{name}-{path.stem}", sentence, name, len(frames)))
        features.append(frames)
    store.write(name, rows, features)


def _extract_transcribed(speech: Path, transcribed: set[str], store: FeatureStore) -> None:
    """Write once more what has got words: `VOICES` stays, as the babble of others."""
    rows, features = [], []
    for path in list_recordings(speech, VOICES):
        key = key_of(path)
        if key in transcribed:
            frames = log_mel(read_recording(path))
            rows.append(FeatureClip(key, key, DOMAIN, len(frames)))
            features.append(frames)
    store.write(DOMAIN, rows, features)
