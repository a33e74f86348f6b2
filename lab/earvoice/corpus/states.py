"""States of a frozen encoder, computed once and kept in half precision."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from earvoice.corpus.clips import Clip
from earvoice.corpus.sound import SAMPLE_RATE_HZ, Sound, as_int16
from earvoice.models.config import Compression, ModelConfig, TargetLanguage
from earvoice.models.frontend import FeatureNormalisation, feature_stream
from earvoice.models.loaders.whisper import installed_whisper, read_whisper
from earvoice.models.precision import has_fast_bfloat16
from earvoice.models.whisper import (
    CtcBranchConfig,
    WhisperConfig,
    WhisperEncoder,
    WhisperFilterbank,
)
from earvoice.runtime.files import atomic_write

Shard = tuple[str, Callable[[], Iterable[tuple[Clip, Sound]]]]
"""Its name, and a function that makes its clips."""

BATCH_S = 120.0
SHORTEST_S, LONGEST_S = 0.1, 28.0
COMPRESSION: Compression = "none"
"""Compression of the states that the decoder reads."""
BRANCH = CtcBranchConfig(layers=4)
"""Without upper layers, which it gets once the encoder is trained."""
SOUND_KEPT = ("spoken-", "nothing-", "branch-")
"""Shards whose sound is stored nowhere else: the encoder's own training needs it again."""
SOUND_SUFFIX = ".sound.npy"


def mixed_precision() -> torch.autocast:
    """Products in bf16 where the CPU supports it: emulated, bf16 is slower than fp32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=has_fast_bfloat16(torch.device("cpu")))


def whisper_folder() -> Path:
    """The folder of the pretrained weights.

    Raises:
        RuntimeError: they are not installed.
    """
    folder = installed_whisper()
    if folder is None:
        message = "Whisper's weights are not installed; `make recogniser` brings them"
        raise RuntimeError(message)
    return folder


def pretrained_part(name: str) -> dict[str, torch.Tensor]:
    """The tensors of Whisper's `encoder` or `decoder`, without that prefix in their names."""
    tensors = read_whisper(whisper_folder())
    return {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}


@cache
def pretrained_encoder(tail_ms: int = WhisperConfig.tail_ms) -> WhisperEncoder:
    """Whisper's encoder as published, with an untrained CTC branch."""
    config = ModelConfig(
        "states",
        "1",
        "en",
        (TargetLanguage("en"),),
        5,
        5,
        encoder=WhisperConfig(tail_ms=tail_ms, compression=COMPRESSION, ctc=BRANCH),
    )
    encoder = WhisperEncoder(config)
    missing, unexpected = encoder.load_state_dict(pretrained_part("encoder"), strict=False)
    if unexpected or any(not name.startswith("ctc.") for name in missing):
        message = f"the weights do not fit: {unexpected or missing}"
        raise RuntimeError(message)
    return encoder.eval()


def features_of(sound: Sound) -> torch.Tensor:
    """[frames, 80] of `WhisperFilterbank`, for [n] float32 sound at 16 kHz."""
    return feature_stream(WhisperFilterbank(), FeatureNormalisation.identity())(sound)


@torch.inference_mode()
def encode(sounds: Sequence[Sound], encoder: WhisperEncoder) -> Iterator[tuple[np.ndarray, int]]:
    """Each sound's [S, d] float16 states of 20 ms and the number of its joined frames.

    The states include the silence after the sound, the frames do not. If the encoder's CTC branch
    has upper layers, the states are those that the branch reads.
    """
    features = [features_of(sound) for sound in sounds]
    unit = 2 * encoder.config.ctc.join_frames
    order = sorted(range(len(sounds)), key=lambda i: len(features[i]))
    out: dict[int, tuple[np.ndarray, int]] = {}
    batch: list[int] = []
    for i in [*order, -1]:
        longest = len(features[i]) if i >= 0 else 0
        if batch and (i < 0 or (len(batch) + 1) * longest > BATCH_S * 100):
            lengths = torch.tensor([len(features[j]) for j in batch])
            padded = torch.nn.utils.rnn.pad_sequence([features[j] for j in batch], batch_first=True)
            with mixed_precision():
                _, read, counts = encoder.hear(padded, lengths)
            for j, each, count in zip(batch, read, counts, strict=True):
                out[j] = (
                    each[: int(count)].half().contiguous().numpy(),
                    -(-len(features[j]) // unit),
                )
            batch = []
        batch.append(i)
    return (out[i] for i in range(len(sounds)))


def write_shards(
    folder: Path,
    shards: Sequence[Shard],
    encoder: Callable[[], WhisperEncoder],
    processes: int = 1,
) -> None:
    """Compute the missing shards; a shard is complete or absent.

    Args:
        encoder: returns the encoder, the same one each time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard in shards if not (folder / f"{shard[0]}.jsonl").exists()]
    if processes == 1:
        for shard in missing:
            _write_shard(folder, shard, encoder)
        return
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        for done in [pool.submit(_write_shard, folder, shard, encoder) for shard in missing]:
            done.result()


def _write_shard(folder: Path, shard: Shard, encoder: Callable[[], WhisperEncoder]) -> None:
    torch.set_num_threads(1)
    name, make = shard
    clips, sounds = [], []
    for clip, sound in make():
        if SHORTEST_S <= len(sound) / SAMPLE_RATE_HZ <= LONGEST_S:
            clips.append(clip)
            sounds.append(sound)
    rows, arrays, begin, first_sample = [], [], 0, 0
    encoded = encode(sounds, encoder())
    for clip, sound, (states, frames) in zip(clips, sounds, encoded, strict=True):
        rows.append(
            {each.name: getattr(clip, each.name) for each in fields(Clip)}
            | {"begin": begin, "states": len(states), "frames": frames}
            | {"first_sample": first_sample, "samples": len(sound)}
        )
        arrays.append(states)
        begin += len(states)
        first_sample += len(sound)
    if clips:
        if name.startswith(SOUND_KEPT):
            np.save(folder / f"{name}{SOUND_SUFFIX}", as_int16(np.concatenate(sounds)))
        np.save(folder / f"{name}.npy", np.concatenate(arrays))
    with atomic_write(folder / f"{name}.jsonl") as path:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    _give_memory_back()
    seconds = sum(map(len, sounds)) / SAMPLE_RATE_HZ
    sys.stdout.write(f"{name}: {len(clips)} clips, {seconds / 60:.0f} min\n")
    sys.stdout.flush()


def _give_memory_back() -> None:
    """Release memory that glibc keeps after tensors of many sizes; it would grow to gigabytes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
