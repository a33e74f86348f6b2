"""Command line of the corpus: ``python -m earvoice.corpus STEP``."""

from __future__ import annotations

import argparse
from pathlib import Path

from earvoice.corpus.extraction import extract
from earvoice.corpus.recording import read_ljspeech
from earvoice.corpus.rendering import plan_requests, render
from earvoice.corpus.selection import Selection, select, select_texts
from earvoice.corpus.sentence import read_sentences, write_sentences
from earvoice.corpus.test_set import write_test_sets


def main() -> None:
    """Run one step of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.corpus", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    texts = steps.add_parser("texts", help="choose sentence pairs: sentences.tsv, texts.tsv")
    speech = steps.add_parser("speech", help="speak sentences.tsv into clips/")
    speech.add_argument("--processes", type=int, default=1)
    speech.add_argument(
        "--dev-only", action="store_true", help="held-out sentences alone, to measure a model"
    )
    features = steps.add_parser("features", help="compute features/")
    test_set = steps.add_parser("testset", help="speak held-out sentences, with word times")
    test_set.add_argument("--out", type=Path, required=True, help="folder of the test sets")
    test_set.add_argument("--count", type=int, default=360, help="inputs of a set, at most")
    for step in (texts, features, test_set):
        step.add_argument("--data", type=Path, required=True, help="folder with text/ and speech/")
    for step in (texts, speech, features):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    for step in (texts, speech, features, test_set):
        step.add_argument("--seed", type=int, default=Selection.seed)
    options = parser.parse_args()
    _STEPS[options.step](options)


def _texts(options: argparse.Namespace) -> None:
    options.corpus.mkdir(parents=True, exist_ok=True)
    selection = Selection(seed=options.seed)
    sentences = select(options.data / "text", selection)
    texts = select_texts(options.data / "text", selection, sentences)
    write_sentences(options.corpus / "texts.tsv", texts)
    sentences += read_ljspeech(options.data / "speech")
    write_sentences(options.corpus / "sentences.tsv", sentences)


def _speech(options: argparse.Namespace) -> None:
    sentences = read_sentences(options.corpus / "sentences.tsv")
    synthesised = [
        sentence
        for sentence in sentences
        if sentence.domain != "ljspeech" and (sentence.split == "dev" or not options.dev_only)
    ]
    requests = plan_requests(synthesised, options.seed)
    render(requests, options.corpus / "clips", options.processes)


def _features(options: argparse.Namespace) -> None:
    extract(options.corpus, options.data / "speech")


def _testset(options: argparse.Namespace) -> None:
    write_test_sets(options.data / "text", options.out, options.seed, options.count)


_STEPS = {"texts": _texts, "speech": _speech, "features": _features, "testset": _testset}

if __name__ == "__main__":
    main()
