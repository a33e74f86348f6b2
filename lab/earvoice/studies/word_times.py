r"""Finds when each word of a recording was said, with its transcript and the model's CTC head.

    python -m earvoice.studies.word_times --model DIR --source wavs.txt --transcripts refs.en.txt \
        --output words.jsonl
    python -m earvoice.studies.word_times ... --known joined/words.jsonl

A forced alignment: the most probable of all ways to say the labels in order. ``--words`` reads the
output; ``--known`` prints how far it is from the times that a synthesiser knows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from earvoice.corpus.sound import Sound, read_sound
from earvoice.corpus.spoken import said_words, spoken_form, transcript
from earvoice.evaluation.log import SpokenWord, read_lines, read_spoken_words
from earvoice.evaluation.script import run_script
from earvoice.evaluation.source_set import read_sources
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.runtime.files import atomic_write
from earvoice.training.ctc import align


def time_words(checkpoint: Checkpoint, name: str, sound: Sound, text: str) -> list[SpokenWord]:
    """Return the spoken words of a text with their times, leaving out words without letters.

    Raises:
        ValueError: the text is too long for the sound; the message contains ``name``.
    """
    encode, frame_ms = checkpoint.source_vocabulary.encode, checkpoint.config.encoder.frame_shift_ms
    said = [(word, encode(transcript(word))) for word in said_words(spoken_form(text))]
    features = checkpoint.open_features()(sound)
    with torch.inference_mode():
        log_probs: torch.Tensor = checkpoint.network.encoder(features[None]).ctc_log_probs[0]
    try:
        frames = align(log_probs.double().numpy(), [label for _, own in said for label in own])
    except ValueError as error:
        raise ValueError(f"{name}: {text!r}: {error}") from error
    spans, timed = iter(frames), []
    for word, labels in said:
        if own := [next(spans) for _ in labels]:
            (first, _), (_, last) = own[0], own[-1]
            timed.append(SpokenWord(word, first * frame_ms, (last + 1) * float(frame_ms)))
    return timed


def differences_ms(
    found: Sequence[Sequence[SpokenWord]], known: Sequence[Sequence[SpokenWord]]
) -> NDArray[np.float64]:
    """Return aligned minus known end of each word, [words], where both have as many words."""
    pairs = [
        (own, other)
        for words, spoken in zip(found, known, strict=True)
        if len(words) == len(spoken)
        for own, other in zip(words, spoken, strict=True)
    ]
    return np.array([own.end_ms - other.end_ms for own, other in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.studies.word_times")
    parser.add_argument("--model", type=Path, required=True, help="folder of a checkpoint")
    parser.add_argument(
        "--source", type=Path, required=True, help="paths of recordings, one per line"
    )
    parser.add_argument(
        "--transcripts", type=Path, required=True, help="their transcripts, one per line"
    )
    parser.add_argument("--output", type=Path, help="where the word times go (JSON lines)")
    parser.add_argument("--known", type=Path, help="true times to compare with (JSON lines)")
    options = parser.parse_args()
    if not (options.output or options.known):
        parser.error("give --output, --known or both")
    torch.set_num_threads(1)
    sources = read_sources(options.source, read_lines(options.transcripts))
    checkpoint = load_checkpoint(options.model)
    found = [
        time_words(checkpoint, str(source.path), read_sound(source.path), source.reference)
        for source in sources
    ]
    if options.output:
        lines = [json.dumps([asdict(word) for word in words]) + "\n" for words in found]
        with atomic_write(options.output) as partial:
            partial.write_text("".join(lines), encoding="utf8")
    if options.known:
        off_ms = differences_ms(found, read_spoken_words(options.known))
        sys.stdout.write(
            f"{len(off_ms)} of {sum(map(len, found))} words: their ends are off by "
            f"{np.median(np.abs(off_ms)):.0f} ms in the median, "
            f"{np.percentile(np.abs(off_ms), 90):.0f} ms or less for nine of ten; "
            f"the median sign is {np.median(off_ms):+.0f} ms\n"
        )


if __name__ == "__main__":
    run_script(main)
