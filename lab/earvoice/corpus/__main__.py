"""`python -m earvoice.corpus STEP`.

`states` computes the encoder's states of the training clips. `held-out` writes test sets: real
readers, sentences by a synthesiser on which no decoder was trained, and conversations with the time
of each word.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from earvoice.corpus.build import first_shards, plan_shards
from earvoice.corpus.held_out import (
    without_published,
    write_answers,
    write_joined,
    write_languages,
    write_nothing,
    write_people,
    write_sentences,
    write_spoken,
)
from earvoice.corpus.pico import is_installed
from earvoice.corpus.recipe import SEED
from earvoice.corpus.states import pretrained_encoder, write_shards
from earvoice.corpus.synthesizer import MissingEngineError
from earvoice.corpus.texts import read_pairs
from earvoice.evaluation.script import run_script


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m earvoice.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=("states", "held-out"))
    parser.add_argument("--data", type=Path, required=True, help="folder of text/ and speech/")
    parser.add_argument("--corpus", type=Path, help="states: where they are kept")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="states: share of the clips that is made, at least 250 of each kind (%(default)s)",
    )
    parser.add_argument("--out", type=Path, help="held-out: where the sets are written")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="(%(default)s)")
    parser.add_argument(
        "--count",
        type=int,
        default=100,
        help="clips of a set, an eighth of a set of sentences (%(default)s)",
    )
    parser.add_argument("--processes", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share}: more than 0, at most 1")
    pairs = read_pairs(options.data / "text", SEED)
    speech = options.data / "speech"
    if options.step == "states":
        if options.corpus is None:
            parser.error("states needs --corpus")
        shards = first_shards(plan_shards(speech, pairs, SEED), options.share)
        write_shards(options.corpus / "states", shards, pretrained_encoder, options.processes)
        return
    if options.out is None:
        parser.error("held-out needs --out")
    write_people(speech, options.out, options.split, options.count)
    write_nothing(speech, pairs, options.out / "nothing", options.split)
    write_languages(pairs, options.out / "languages", SEED, options.split)
    if options.split == "dev":
        unpublished = without_published(pairs, SEED, options.count)
        write_sentences(unpublished, options.out, SEED, 8 * options.count)
        return
    write_joined(pairs, options.out / "joined", SEED, options.count)
    if is_installed():
        write_spoken(pairs, options.out, SEED, options.count)
        write_answers(options.out / "answers", SEED)


if __name__ == "__main__":
    run_script(main, MissingEngineError)
