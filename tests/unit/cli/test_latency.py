"""`earvoice latency` with files."""

import json

import pytest

from earvoice.cli.__main__ import main
from tests.unit.latency.traced import item, segment_spans, session_span, span, write_spans

STAGES = {"encoder_compute": 60, "decoder_compute": 40}


@pytest.fixture
def files(tmp_path):
    """Three services, a file each."""
    spans = [
        *segment_spans(1, STAGES, [item(500, 600, 300)], utterance_end_ms=500),
        session_span(audio_ms=500.0),
    ]
    split = {"policy": [], "encoder": [], "decoder": []}
    for one in spans:
        service = one["name"].partition(".")[0] if "." in one["name"] else "policy"
        split[service].append(one)
    return [str(write_spans(tmp_path / f"{name}.jsonl", own)) for name, own in split.items()]


def test_files_are_joined_in_any_order(files, capsys):
    """Three services write three files."""
    assert main(["latency", *reversed(files)]) == 0
    text = capsys.readouterr().out
    assert "word lag, live" in text
    assert "real-time factor: 0.200" in text


def test_json_and_the_page(files, tmp_path, capsys):
    """One for programs, one for people."""
    page = tmp_path / "page.html"
    assert main(["latency", *files, "--format", "json", "--html", str(page)]) == 0
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert session["laal_star_ms"] == {"ideal": 500, "live": 600, "true": 600}
    assert page.read_text(encoding="utf8").startswith("<!doctype html>")


@pytest.mark.parametrize("arguments", [[], ["file", "--listen", "127.0.0.1:0"]])
def test_files_or_an_address(arguments, capsys):
    """One of both, and the message says so."""
    assert main(["latency", *arguments]) == 2
    assert "give either span files or --listen" in capsys.readouterr().err


def test_files_that_tell_nothing_are_refused(tmp_path, capsys):
    """A missing file, a broken one, and one of another program."""
    assert main(["latency", str(tmp_path / "missing")]) == 3
    assert capsys.readouterr().err == f"earvoice: {tmp_path}/missing: No such file or directory\n"
    broken = tmp_path / "broken"
    broken.write_text("{\n", encoding="utf8")
    assert main(["latency", str(broken)]) == 3
    assert f"{broken}:1: no OTLP/JSON" in capsys.readouterr().err
    other = write_spans(tmp_path / "other", [span("GET /", "a" * 32, 1.0)])
    assert main(["latency", str(other)]) == 3
    assert "no span of a session" in capsys.readouterr().err
