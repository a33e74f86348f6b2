"""Command line of the corpus: ``python -m earvoice.corpus STEP``."""

from __future__ import annotations

import argparse
from pathlib import Path

from earvoice.corpus.extraction import extract
from earvoice.corpus.recording import read_ljspeech
from earvoice.corpus.rendering import plan_requests, render
from earvoice.corpus.selection import Selection, select, select_texts
from earvoice.corpus.sentence import read_sentences, write_sentences


def main() -> None:
    """Run one step of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.corpus", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    texts = steps.add_parser("texts", help="choose sentence pairs: sentences.tsv, texts.tsv")
    speech = steps.add_parser("speech", help="speak sentences.tsv into clips/")
    speech.add_argument("--processes", type=int, default=1)
    features = steps.add_parser("features", help="compute features/")
    for step in (texts, features):
        step.add_argument("--data", type=Path, required=True, help="folder with text/ and speech/")
    for step in (texts, speech, features):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
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
    synthesised = [sentence for sentence in sentences if sentence.domain != "ljspeech"]
    requests = plan_requests(synthesised, options.seed)
    render(requests, options.corpus / "clips", options.processes)


def _features(options: argparse.Namespace) -> None:
    extract(options.corpus, options.data / "speech")


_STEPS = {"texts": _texts, "speech": _speech, "features": _features}

if __name__ == "__main__":
    main()
