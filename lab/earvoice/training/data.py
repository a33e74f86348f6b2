"""Clips with their states, in batches of like lengths."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.corpus.states import SOUND_SUFFIX
from earvoice.training.teacher import english_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

D_MODEL = 384
JOIN = 2
HEARD_COLUMNS = 3


@dataclass
class Heard:
    """A clip and where its states are."""

    key: str
    source: str
    condition: str
    texts: dict[str, str]
    transcript: str
    shard: np.ndarray
    begin: int
    states: int
    frames: int
    sound: np.ndarray | None = None
    """[n] int16 at 16 kHz where the shard keeps it: of what a synthesiser said, and of nothing."""

    @property
    def is_cut(self) -> bool:
        """Whether the sound ends somewhere within the words."""
        return self.condition == "cut"

    @property
    def english(self) -> str | None:
        return self.texts.get("en")

    @property
    def said(self) -> str | None:
        """The words, lower case, numbers as words; None where they are not known."""
        text = self.transcript or self.english
        return None if text is None else transcript(spoken_form(text))

    @property
    def joined(self) -> int:
        return self.states // JOIN

    def load(self) -> torch.Tensor:
        """[joined frames, 2 d] float32 with the silence after the sound."""
        part = np.asarray(self.shard[self.begin : self.begin + self.states], dtype=np.float32)
        return torch.from_numpy(part).view(-1, JOIN * part.shape[1])


def read_heard(table: Path) -> dict[str, tuple[str, float]]:
    """What the teacher heard: by clip, the words and a token's mean log-probability."""
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row[0]: (row[2], float(row[1])) for row in rows if len(row) == HEARD_COLUMNS}


def read_clips(corpus: Path, split: str, prefixes: Sequence[str] = ("",)) -> list[Heard]:
    """The clips of a split whose shards are there; English is filled in from the teacher."""
    heard = read_heard(corpus / "heard.tsv")
    clips = []
    for table in sorted((corpus / "states").glob("*.jsonl")):
        if not table.name.startswith(tuple(prefixes)):
            continue
        shard = np.load(table.with_suffix(".npy"), mmap_mode="r")
        kept = table.with_suffix(SOUND_SUFFIX)
        sounds = np.load(kept, mmap_mode="r") if kept.exists() else None
        for line in table.open(encoding="utf-8"):
            row = json.loads(line)
            if row["split"] != split:
                continue
            texts = row["texts"]
            words, score = heard.get(row["key"].split("/")[0], ("", -9.0))
            if "en" not in texts and (english := english_of(row["transcript"], words, score)):
                texts["en"] = english
            clips.append(
                Heard(
                    row["key"],
                    row["source"],
                    row["condition"],
                    texts,
                    row["transcript"],
                    shard,
                    row["begin"],
                    row["states"],
                    row["frames"],
                    None if sounds is None else sounds[row["first_sample"] :][: row["samples"]],
                )
            )
    return clips


def batches(sizes: Sequence[int], room: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Indices in batches whose padded size is at most `room`, in an order drawn anew, for ever."""
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
