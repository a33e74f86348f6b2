"""Held-out sets made of others: joined, over a telephone line, real; and sound without words."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.clip_store import ClipStore
from earvoice.corpus.extraction import CLIP_FOLDERS, log_mel
from earvoice.corpus.recording import (
    VOICES,
    is_held_out_voice,
    list_recordings,
    read_recording,
    untranslated,
)
from earvoice.corpus.sentence import Sentence
from earvoice.corpus.telephone_line import send_over_line
from earvoice.models.frontend import INT16_SCALE
from earvoice.training.dev_set import DevClip, read_dev_sentences, voice_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from earvoice.models.frontend import FeatureNormalisation

_PAUSE_FRAMES = 40
_JOINED_FRAMES = (500, 1_500)
_MINUTE_SAMPLES = 60 * 16_000
_BABBLE_VOICES = 6
_QUIET_RMS = 1e-4


def join(clips: Sequence[DevClip]) -> list[DevClip]:
    """Join neighbouring clips with pauses to inputs of 5 to 15 s."""
    joined: list[DevClip] = []
    row: list[DevClip] = []
    frames = 0
    for clip in clips:
        if row and frames + _PAUSE_FRAMES + len(clip.features) > _JOINED_FRAMES[1]:
            joined.append(_concatenated(row))
            row, frames = [], 0
        row.append(clip)
        frames += _PAUSE_FRAMES + len(clip.features)
        if frames >= sum(_JOINED_FRAMES) // 2:
            joined.append(_concatenated(row))
            row, frames = [], 0
    return [clip for clip in joined if len(clip.features) >= _JOINED_FRAMES[0]]


def read_over_telephone(
    corpus: Path, domain: str, normalisation: FeatureNormalisation
) -> dict[str, list[DevClip]]:
    """Send a domain's held-out clips over a telephone line: by set, ``telephone/VOICE``."""
    sentences = {k: row for k, row in read_dev_sentences(corpus).items() if row.domain == domain}
    sets: dict[str, list[DevClip]] = {}
    for folder in CLIP_FOLDERS:
        for clip, wave in ClipStore(corpus / folder).read_all():
            if clip.sentence in sentences:
                line = send_over_line(wave).astype(np.float32) / INT16_SCALE
                heard = DevClip.of(log_mel(line), sentences[clip.sentence], normalisation)
                sets.setdefault(f"telephone/{voice_kind(clip.key)}", []).append(heard)
    return sets


def read_samples(samples: Path, normalisation: FeatureNormalisation) -> list[DevClip]:
    """Read the recordings of LibriSpeech that come with a transcript."""
    clips = []
    with (samples / "samples.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["file"].startswith("librispeech") and row["transcript"]:
                features = log_mel(read_recording(samples / row["file"])).astype(np.float32)
                clip = normalisation(torch.from_numpy(features))
                name = Path(row["file"]).stem
                said = untranslated("librispeech", name, "dev", name, row["transcript"])
                clips.append(DevClip(clip, said))
    return clips


def make_silence() -> NDArray[np.float32]:
    """Return a minute of a very quiet room, [n] from -1 to 1, at 16 kHz."""
    return np.random.default_rng(1).normal(0.0, _QUIET_RMS, _MINUTE_SAMPLES).astype(np.float32)


def make_babble(speech: Path) -> NDArray[np.float32]:
    """Return a minute of six real voices at once, none of which training has heard: [n], 16 kHz."""
    paths = [path for path in list_recordings(speech, VOICES) if is_held_out_voice(path)]
    babble = np.zeros(_MINUTE_SAMPLES)
    for voice in range(_BABBLE_VOICES):
        said = np.concatenate([read_recording(path) for path in paths[voice::_BABBLE_VOICES]])
        babble += np.resize(said, _MINUTE_SAMPLES) / _BABBLE_VOICES
    return babble.astype(np.float32)


def _concatenated(row: list[DevClip]) -> DevClip:
    quietest = torch.stack([clip.features.amin(dim=0) for clip in row]).amin(dim=0)
    pause = quietest.expand(_PAUSE_FRAMES, -1)
    parts = [part for clip in row for part in (clip.features, pause)][:-1]
    first = row[0].sentence
    sentence = Sentence(
        key=first.key,
        split="dev",
        domain=first.domain,
        group=first.group,
        speaker=first.speaker,
        spoken=" ".join(clip.sentence.spoken for clip in row),
        transcript=" ".join(clip.sentence.transcript for clip in row),
        german=_joined_translation(row, "de"),
        spanish=_joined_translation(row, "es"),
    )
    return DevClip(torch.cat(parts), sentence)


def _joined_translation(row: list[DevClip], language: str) -> str:
    """Return all translations, or nothing where one of them is missing."""
    parts = [clip.sentence.translation(language) for clip in row]
    return " ".join(parts) if all(parts) else ""
