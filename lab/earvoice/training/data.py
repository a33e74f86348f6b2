"""Clips with their states, in batches of similar lengths."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.build import BABBLING_CLIPS, SHARD_CLIPS
from earvoice.corpus.clips import Clip
from earvoice.corpus.recipe import SOURCE_LANGUAGE
from earvoice.corpus.sound import (
    INT16_SCALE,
    SAMPLE_RATE_HZ,
    Sound,
    as_int16,
    cut_short,
    phrase,
    read_sound,
    worsened,
)
from earvoice.corpus.states import SOUND_SUFFIX, write_shards
from earvoice.training.teacher import english_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from earvoice.models.whisper import WhisperEncoder

D_MODEL = 384
JOIN = 2
HEARD_COLUMNS = 3
FRAME_SAMPLES = JOIN * SAMPLE_RATE_HZ // 50
PHRASES = 2
"""Number drawn from each recording whose words are known."""
WORSE = {"noise_share": 0.65, "least_snr_db": 0.0}
"""For recordings, more noise than in the decoder's training; synthesised speech stays unchanged."""


@dataclass(kw_only=True)
class Heard(Clip):
    """A clip and the location of its states."""

    shard: np.ndarray
    begin: int
    states: int
    frames: int
    sound: np.ndarray | None = None
    """[n] int16 at 16 kHz if the shard keeps it: for synthesised speech and for no speech."""

    @property
    def joined(self) -> int:
        return self.states // JOIN

    def load(self) -> torch.Tensor:
        """[joined frames, 2 d] float32, including the silence after the sound."""
        part = np.asarray(self.shard[self.begin : self.begin + self.states], dtype=np.float32)
        return torch.from_numpy(part).view(-1, JOIN * part.shape[1])


def read_heard(table: Path) -> dict[str, tuple[str, float]]:
    """The teacher's transcripts: by clip, the words and the mean log-probability of a token."""
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row[0]: (row[2], float(row[1])) for row in rows if len(row) == HEARD_COLUMNS}


def read_clips(corpus: Path, split: str, prefixes: Sequence[str] = ("",)) -> list[Heard]:
    """A split's clips, from the shards that exist; missing English comes from the teacher."""
    heard = read_heard(corpus / "heard.tsv")
    clips = []
    for table in sorted((corpus / "states").glob("*.jsonl")):
        if not table.name.startswith(tuple(prefixes)) or not table.stat().st_size:
            continue
        shard = np.load(table.with_suffix(".npy"), mmap_mode="r")
        kept = table.with_suffix(SOUND_SUFFIX)
        sounds = np.load(kept, mmap_mode="r") if kept.exists() else None
        for line in table.open(encoding="utf-8"):
            row = json.loads(line)
            if row["split"] != split:
                continue
            begin, count = row["first_sample"], row["samples"]
            clip = Clip(**{each.name: row[each.name] for each in fields(Clip)})
            words, score = heard.get(clip.recording, ("", -9.0))
            # What only the teacher has heard is no measure of the dev split.
            if split != "train" and not clip.transcript:
                words = ""
            if clip.english is None and (written := english_of(clip.transcript, words, score)):
                clip.texts[SOURCE_LANGUAGE] = written
            clips.append(
                Heard(
                    **vars(clip),
                    shard=shard,
                    begin=row["begin"],
                    states=row["states"],
                    frames=row["frames"],
                    sound=None if sounds is None else sounds[begin : begin + count],
                )
            )
    return clips


def batches(sizes: Sequence[int], room: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Endless batches of indices, at most `room` each with padding, in a new order every pass."""
    while True:
        order = np.argsort(np.asarray(sizes) * generator.uniform(0.9, 1.1, len(sizes)))
        parts: list[list[int]] = []
        part: list[int] = []
        longest = 0
        for index in order.tolist():
            longest = max(longest, sizes[index])
            if part and longest * (len(part) + 1) > room:
                parts.append(part)
                part, longest = [], sizes[index]
            part.append(index)
        parts.append(part)
        generator.shuffle(parts)
        yield from parts


class Sounds:
    """The sound of clips; recordings are degraded differently each time.

    Args:
        recordings: by key, the files of the clips whose shards do not keep the sound.
    """

    def __init__(self, clips: Sequence[Heard], recordings: Mapping[str, Path]) -> None:
        self.clips, self._recordings = clips, recordings
        self._read: dict[int, np.ndarray] = {}
        recorded = [index for index in range(len(clips)) if self.is_recording(index)]
        self._voices = [self.undisturbed(index) for index in recorded[:BABBLING_CLIPS]]

    def is_recording(self, index: int) -> bool:
        return self.clips[index].sound is None

    def undisturbed(self, index: int) -> Sound:
        """[n] float32 at 16 kHz."""
        clip = self.clips[index]
        kept = clip.sound
        if kept is None:
            if index not in self._read:
                self._read[index] = as_int16(read_sound(self._recordings[clip.key]))
            kept = self._read[index]
        return np.asarray(kept, dtype=np.float32) / np.float32(INT16_SCALE)

    def drawn(self, index: int, generator: np.random.Generator) -> Sound:
        """A recording is degraded, any other clip is unchanged."""
        sound = self.undisturbed(index)
        if not self.is_recording(index):
            return sound
        return worsened(sound, self._voices, generator, **WORSE)


def heard_by(encoder: WhisperEncoder, sounds: Sounds, folder: Path, seed: int) -> list[Heard]:
    """The clips with this encoder's states: whole and cut; recordings also degraded and in phrases.

    Args:
        folder: where the states are kept, part by part; states of another encoder, of other clips
            or with another seed are deleted first.
    """

    def ways(index: int) -> Iterator[Heard]:
        clip = sounds.clips[index]
        yield clip
        if sounds.is_recording(index):
            yield clip.worsened()
        if clip.said:
            yield clip.cut()
            if sounds.is_recording(index):
                yield from map(clip.phrase, range(PHRASES))

    todo = [(index, clip) for index in range(len(sounds.clips)) for clip in ways(index)]
    hearing = {n: t for n, t in encoder.state_dict().items() if not n.startswith("ctc.")}
    _make_way(folder, f"{digest_of(hearing, (clip for _, clip in todo))} {seed}")

    def made(number: int) -> Iterator[tuple[Clip, Sound]]:
        generator = np.random.default_rng((seed, number))
        for index, clip in todo[number * SHARD_CLIPS :][:SHARD_CLIPS]:
            if clip.is_phrase:
                begin, sound = phrase(sounds.undisturbed(index), generator, FRAME_SAMPLES)
                yield replace(clip, begin_frame=begin // FRAME_SAMPLES), sound
            elif clip.is_cut:
                yield clip, cut_short(sounds.undisturbed(index), generator)
            elif clip.is_worsened:
                yield clip, sounds.drawn(index, generator)
            else:
                yield clip, sounds.undisturbed(index)

    numbers = range(-(-len(todo) // SHARD_CLIPS))
    shards = [(f"{number:03d}", partial(made, number)) for number in numbers]
    write_shards(folder / "states", shards, lambda: encoder)
    return read_clips(folder, "train")


def digest_of(tensors: Mapping[str, torch.Tensor], clips: Iterable[Heard]) -> str:
    """A digest that identifies what is computed from these weights and clips."""
    digest = hashlib.sha256()
    for clip in clips:
        words = clip.key, sorted(clip.texts.items()), clip.transcript
        # Every state has heard the whole sound: the first one stands for it.
        first = clip.shard[clip.begin : clip.begin + 1]
        digest.update(f"{words} {clip.states} {clip.frames}\n".encode() + first.tobytes())
    for tensor in tensors.values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _make_way(folder: Path, digest: str) -> None:
    """Empty a folder unless its content has this digest."""
    known = folder / "digest"
    if folder.exists() and not (known.exists() and known.read_text() == digest):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known.write_text(digest)
