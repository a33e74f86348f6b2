"""A text source through the three services, from a checkpoint like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.models.config import DecoderConfig, PolicyDefaults
from earvoice.models.text import TextConfig
from tests.e2e.calling import SPEECH
from tests.e2e.running import earvoice, start
from tests.tiny_model import LIVELY_TEXT, tiny_config, train_sentencepiece, write_lively_checkpoint

pytestmark = pytest.mark.torch

TEXT = "die kleine Katze sieht das alte Haus\nheute bringt der Lehrer das Buch\n"
WORD_MS = 250
POLICY = ("--policy", "strided-wait-k:k=2", "--commit-unit", "token", "--no-guards")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Services of a tiny checkpoint."""
    folder = tmp_path_factory.mktemp("text")
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = replace(
        tiny_config(pieces, pieces),
        encoder=TextConfig(d_model=32, layers=2, heads=4, ffn_width=48),
        decoder=DecoderConfig(layers=2, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults("wait_k", attention_layer=1, segment_ms=WORD_MS),
    )
    write_lively_checkpoint(folder / "model", config, pieces)
    model = {f"EARVOICE_{one}_MODEL_PATH": str(folder / "model") for one in ("ENCODER", "DECODER")}
    running = start(folder, **model)
    yield running.address
    assert running.stop() == 0


def test_words_come_as_they_are_due(address: str, tmp_path: Path) -> None:
    """Sentences are utterances; nothing is written before two words, then at words' ends.

    From a file and from a pipe, the same.
    """
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    command = ("translate", "--text", "--server", address, "--to", "de", "--format", "jsonl")
    told = []
    for source, given in ((file, ""), ("-", TEXT)):
        done = earvoice(*command, "--transcript", *POLICY, source, given=given)
        assert done.returncode == 0, done.stderr
        told.append([json.loads(line) for line in done.stdout.splitlines()])
    texts = [[one["text"] for one in lines if one["type"] == "word"] for lines in told]
    assert texts[0] == texts[1]
    lines = told[0]
    ends = [line for line in lines if line["type"] == "utterance_end"]
    assert [(one["source_start_ms"], one["source_end_ms"]) for one in ends] == [
        (0, 7 * WORD_MS),
        (7 * WORD_MS, 13 * WORD_MS),
    ]
    words = [line for line in lines if line["type"] == "word"]
    for utterance, begin in enumerate((0, 7 * WORD_MS)):
        delays = [one["delay_ms"] - begin for one in words if one["utterance"] == utterance]
        assert delays
        assert min(delays) >= 2 * WORD_MS
        assert all(delay % WORD_MS == 0 for delay in delays)
        # Token t is not there before k + t - 1 words.
        assert all(
            delay >= min((2 + place) * WORD_MS, max(delays)) for place, delay in enumerate(delays)
        )


def test_a_test_set_is_scored_in_words(address: str, tmp_path: Path) -> None:
    """Each line is an instance; the table has a column of words, and a second run goes on."""
    (tmp_path / "source").write_text(TEXT)
    (tmp_path / "target").write_text("eins zwei\ndrei vier\n")
    options = ("--source", tmp_path / "source", "--target", tmp_path / "target", *POLICY)
    for _ in range(2):
        command = ("evaluate", "--text", "--server", address, "--to", "de")
        done = earvoice(*command, *options, "--output", tmp_path / "run")
        assert done.returncode == 0, done.stderr
        assert "ideal, words" in done.stdout
    log = (tmp_path / "run" / "instances.log").read_text().splitlines()
    assert [json.loads(line)["source_length"] for line in log] == [7 * WORD_MS, 6 * WORD_MS]
    assert (tmp_path / "run" / "config.yaml").read_text().startswith("source_type: text\n")


def test_sound_is_refused_by_name(address: str) -> None:
    """A model that reads says what it takes."""
    done = earvoice("translate", SPEECH, "--server", address, "--to", "de")
    assert done.returncode != 0
    assert "audio_encoding" in done.stderr
    assert "allowed: AUDIO_ENCODING_WORDS" in done.stderr
