"""Measure a checkpoint on held-out speech: ``python -m earvoice.training.evaluate``.

Prints a line for every set: the word error rate of the CTC transcript and sacreBLEU of the
greedy translation of whole inputs (offline). ``joined/VOICE`` are neighbouring sentences of one
domain in inputs of 5 to 15 s, ``telephone/VOICE`` the chat sentences over an 8 kHz line, and
``librispeech`` the transcribed LibriSpeech clips among the samples.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.extraction import log_mel
from earvoice.corpus.recording import read_recording
from earvoice.corpus.sentence import Sentence
from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.translation import SpeechTranslationModel
from earvoice.training.augmentation import telephone
from earvoice.training.dev_set import DevClip, read_dev_sets, score
from earvoice.training.metric import bleu

if TYPE_CHECKING:
    from earvoice.models.checkpoint import Checkpoint
    from earvoice.models.config import ModelConfig
    from earvoice.models.frontend import FeatureNormalisation

_PAUSE_FRAMES = 40
_JOINED_FRAMES = (500, 1_500)
_VOICES = ("seen", "unseen", "speaker")


def main() -> None:
    """Print the scores of a checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training.evaluate")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--data", type=Path, required=True, help="folder with speech/samples")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(options.model)
    sets = read_dev_sets(options.corpus, checkpoint.normalisation)
    for voice in _VOICES:
        sets[f"joined/{voice}"] = join(sets[f"chat/{voice}"])
        sets[f"telephone/{voice}"] = [
            over_telephone(clip, checkpoint.normalisation) for clip in sets[f"chat/{voice}"]
        ]
    sets["librispeech"] = read_samples(options.data / "speech" / "samples", checkpoint)
    sys.stdout.write(f"{checkpoint.name}: {count_parameters(checkpoint.config):,} parameters\n")
    for name in sorted(sets):
        _print_score(name, sets[name], checkpoint)
    sys.stdout.write(f"sacreBLEU {bleu([''], [''])[2]}\n")
    sys.stdout.write(f"encoder pass over 10 s: {encoder_ms(checkpoint):.1f} ms\n")


def join(clips: list[DevClip]) -> list[DevClip]:
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


def over_telephone(clip: DevClip, normalisation: FeatureNormalisation) -> DevClip:
    """Send a clip over the telephone line that training simulates, seeded by its sentence."""
    generator = np.random.default_rng(list(clip.sentence.key.encode()))
    raw = clip.features * normalisation.deviation + normalisation.mean
    line = telephone(raw.numpy(), generator)
    return DevClip(normalisation(torch.from_numpy(line)), clip.sentence)


def read_samples(samples: Path, checkpoint: Checkpoint) -> list[DevClip]:
    """Read the recordings of LibriSpeech that come with a transcript."""
    clips = []
    with (samples / "samples.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            if not row["file"].startswith("librispeech") or not row["transcript"]:
                continue
            features = log_mel(read_recording(samples / row["file"])).astype(np.float32)
            spoken = spoken_form(row["transcript"])
            sentence = Sentence(
                key=row["file"],
                split="dev",
                domain="librispeech",
                group=row["file"],
                speaker="",
                spoken=spoken,
                transcript=transcript(spoken),
                german="",
            )
            clips.append(DevClip(checkpoint.normalisation(torch.from_numpy(features)), sentence))
    return clips


def count_parameters(config: ModelConfig) -> int:
    """Return the number of trained weights of a model."""
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in SpeechTranslationModel(config).parameters())


def encoder_ms(checkpoint: Checkpoint, repeats: int = 20) -> float:
    """Return the median time of one encoder pass over 10 s of noise on one core."""
    features = torch.randn(1_000, checkpoint.config.mel_bins)
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        checkpoint.network.encoder.encode(features)
        taken.append(1000 * (time.perf_counter() - started))
    return float(np.median(taken))


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
        german=" ".join(clip.sentence.german for clip in row),
    )
    return DevClip(torch.cat(parts), sentence)


def _print_score(name: str, clips: list[DevClip], checkpoint: Checkpoint) -> None:
    result = score(
        name, clips, checkpoint.network, checkpoint.source_vocabulary, checkpoint.target_vocabulary
    )
    sys.stdout.write(f"{result}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
