"""How much a model misreads, by how densely its transcript pieces stand in the audio.

    python benchmarks/reading_rate.py --model DIR --corpus FOLDER --set chat/unseen

CTC writes at most one piece a frame, and a blank between two equal ones. The first column is pieces
a frame of held-out clips, where a frame is what the encoder makes before compression.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.training.dev_set import DevClip, read_dev_sets
from earvoice.training.metric import word_error_rate
from earvoice.training.transcription import ctc_tokens


@dataclass(frozen=True)
class Reading:
    """What was said in a clip, what the model read, and its pieces a frame."""

    said: str
    heard: str
    pieces_per_frame: float


def read(checkpoint: Checkpoint, clip: DevClip) -> Reading:
    encoded = checkpoint.network.encoder.encode(clip.features)
    said = clip.sentence.transcript
    heard = checkpoint.source_vocabulary.decode(ctc_tokens(encoded, checkpoint.config.blank))
    pieces = len(checkpoint.source_vocabulary.encode(said))
    return Reading(said, heard, pieces / len(encoded.frame_labels))


def print_row(label: str, readings: Sequence[Reading]) -> None:
    said = [reading.said for reading in readings]
    error = 100 * word_error_rate([reading.heard for reading in readings], said)
    words = sum(len(text.split()) for text in said)
    print(f"{label:>12} {error:7.1f} {len(said):7} {words:7}")


def main() -> None:
    """Print a row for each tenth of a piece a frame, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--corpus", type=Path, required=True, help="folder with features/")
    parser.add_argument("--set", default="chat/unseen", help="held-out clips (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(options.model)
    sets = read_dev_sets(options.corpus, checkpoint.normalisation)
    if options.set not in sets:
        parser.error(f"argument --set: {options.set!r}; allowed: {', '.join(sorted(sets))}")
    rows: dict[float, list[Reading]] = defaultdict(list)
    for clip in sets[options.set]:
        reading = read(checkpoint, clip)
        rows[round(reading.pieces_per_frame, 1)].append(reading)
    print("pieces/frame   WER %   clips   words")
    for density, alike in sorted(rows.items()):
        print_row(f"{density:.1f}", alike)
    readings = list(chain.from_iterable(rows.values()))
    print_row("all", readings)
    mean = statistics.fmean(reading.pieces_per_frame for reading in readings)
    print(f"mean of all clips: {mean:.2f} pieces a frame")


if __name__ == "__main__":
    main()
