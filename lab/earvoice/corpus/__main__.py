"""Command line of the corpus: ``python -m earvoice.corpus STEP``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.corpus.demo_recording import write_demo
from earvoice.corpus.extraction import extract
from earvoice.corpus.hibari import is_installed as is_hibari_installed
from earvoice.corpus.kokoro import speak_with_kokoro
from earvoice.corpus.pico import is_installed, speak_with_pico
from earvoice.corpus.recording import read_ljspeech
from earvoice.corpus.rendering import (
    NEURAL_SHARD_CLIPS,
    plan_engine_requests,
    plan_neural_requests,
    plan_requests,
    plan_second_requests,
    plan_third_requests,
    render,
)
from earvoice.corpus.selection import Selection, select, select_texts
from earvoice.corpus.sentence import read_sentences, write_sentences
from earvoice.corpus.synthesizer import EngineMissingError
from earvoice.corpus.test_set import write_test_sets
from earvoice.corpus.transcription import DOMAIN, read_transcribed, transcribe, transcript_table
from earvoice.corpus.transcription import is_installed as is_recogniser_installed

if TYPE_CHECKING:
    from earvoice.corpus.sentence import Sentence


def main() -> None:
    """Run one step of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.corpus", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    texts = steps.add_parser("texts", help="choose sentence pairs: sentences.tsv, texts.tsv")
    speech = steps.add_parser("speech", help="speak sentences.tsv into clips/")
    speech.add_argument(
        "--dev-only", action="store_true", help="held-out sentences alone, to measure a model"
    )
    again = steps.add_parser("again", help="speak every train sentence once more, by another voice")
    third = steps.add_parser("third", help="speak a part a third time, by the nearest to people")
    third.add_argument("--hours", type=float, default=8.0, help="about (%(default)s)")
    neural = steps.add_parser("neural", help="speak a part once more, by neural voices")
    neural.add_argument("--kokoro", type=Path, required=True, help="folder of the synthesiser")
    neural.add_argument(
        "--hours", type=float, default=0.9, help="of train sentences, about (%(default)s)"
    )
    transcripts = steps.add_parser(
        "transcribe", help="write down what is said in the recordings without words"
    )
    features = steps.add_parser("features", help="compute features/")
    test_set = steps.add_parser("testset", help="speak held-out sentences, with word times")
    test_set.add_argument("--out", type=Path, required=True, help="folder of the test sets")
    test_set.add_argument("--count", type=int, default=360, help="inputs of a set, at most")
    demo = steps.add_parser("demo", help="speak the recording of `make demo`")
    demo.add_argument("--kokoro", type=Path, required=True, help="folder of the synthesiser")
    demo.add_argument("--out", type=Path, required=True, help="the recording, .wav")
    for step in (speech, again, third, neural):
        step.add_argument("--processes", type=int, default=1)
    for step in (texts, transcripts, features, test_set, demo):
        step.add_argument("--data", type=Path, required=True, help="folder with text/ and speech/")
    for step in (texts, speech, again, third, neural, transcripts, features):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    for step in (texts, speech, again, third, neural, features, test_set, demo):
        step.add_argument("--seed", type=int, default=Selection.seed)
    options = parser.parse_args()
    try:
        _STEPS[options.step](options)
    except EngineMissingError as error:
        parser.exit(1, f"{error}\nWhat was spoken stays: run it again with the engine there.\n")


def _texts(options: argparse.Namespace) -> None:
    options.corpus.mkdir(parents=True, exist_ok=True)
    selection = Selection(seed=options.seed)
    sentences = select(options.data / "text", selection)
    texts = select_texts(options.data / "text", selection, sentences)
    write_sentences(options.corpus / "texts.tsv", texts)
    sentences += read_ljspeech(options.data / "speech")
    sentences += read_transcribed(options.corpus)
    write_sentences(options.corpus / "sentences.tsv", sentences)


def _speech(options: argparse.Namespace) -> None:
    synthesised = [
        sentence
        for sentence in _synthesised(options.corpus)
        if sentence.split == "dev" or not options.dev_only
    ]
    requests = plan_requests(synthesised, options.seed)
    render(requests, options.corpus / "clips", options.processes)
    if not is_installed():
        sys.stderr.write("pico is not installed: no set of an engine that training never hears\n")
        return
    requests = plan_engine_requests(synthesised, options.seed)
    render(requests, options.corpus / "engine-clips", options.processes, speak_with_pico)


def _again(options: argparse.Namespace) -> None:
    requests = plan_second_requests(_synthesised(options.corpus), options.seed)
    render(requests, options.corpus / "again-clips", options.processes)


def _third(options: argparse.Namespace) -> None:
    if not is_hibari_installed():
        sys.stderr.write("hibari is not installed: nothing is said a third time\n")
        return
    requests = plan_third_requests(_synthesised(options.corpus), options.seed, options.hours)
    render(requests, options.corpus / "third-clips", options.processes)


def _transcribe(options: argparse.Namespace) -> None:
    if not is_recogniser_installed():
        sys.stderr.write("faster-whisper or its weights are not installed: no more transcripts\n")
        return
    options.corpus.mkdir(parents=True, exist_ok=True)
    if not transcript_table(options.corpus).exists():
        transcribe(options.data / "speech", options.corpus)


def _neural(options: argparse.Namespace) -> None:
    requests = plan_neural_requests(_synthesised(options.corpus), options.seed, options.hours)
    speaker = partial(speak_with_kokoro, options.kokoro)
    folder = options.corpus / "neural-clips"
    render(requests, folder, options.processes, speaker, NEURAL_SHARD_CLIPS)


def _synthesised(corpus: Path) -> list[Sentence]:
    """Return the sentences that are not recordings."""
    rows = read_sentences(corpus / "sentences.tsv")
    return [sentence for sentence in rows if sentence.domain not in ("ljspeech", DOMAIN)]


def _features(options: argparse.Namespace) -> None:
    extract(options.corpus, options.data / "speech")


def _demo(options: argparse.Namespace) -> None:
    write_demo(options.data / "text", options.kokoro, options.seed, options.out)


def _testset(options: argparse.Namespace) -> None:
    write_test_sets(options.data / "text", options.out, options.seed, options.count)


_STEPS = {
    "texts": _texts,
    "speech": _speech,
    "again": _again,
    "third": _third,
    "neural": _neural,
    "transcribe": _transcribe,
    "features": _features,
    "testset": _testset,
    "demo": _demo,
}

if __name__ == "__main__":
    main()
