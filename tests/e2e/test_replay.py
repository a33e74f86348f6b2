"""A replay of what the encoder heard is what the services say, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from earvoice.evaluation.log import read_records
from tests.e2e.running import Running, earvoice

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

RECORDING = Path(__file__).parents[2] / "demo" / "librispeech_1995-1837-0001.wav"
LIVE = {
    "edatt:alpha=0.2@segment=800": ("--policy", "edatt:alpha=0.2", "--segment-ms", 800),
    "align_att:frames=4@segment=800": ("--policy", "align_att:frames=4", "--segment-ms", 800),
    "edatt:alpha=0.4,attention_layer=2,attention_heads=1+3@segment=800": (
        *("--policy", "edatt:alpha=0.4,attention_layer=2,attention_heads=1+3"),
        *("--segment-ms", 800),
    ),
    "local_agreement:n=2@segment=1000": ("--policy", "local_agreement:n=2", "--segment-ms", 1000),
    "shared_prefix:n=2@segment=1000,beam=3": (
        *("--policy", "shared_prefix:n=2", "--segment-ms", 1000, "--beam-size", 3),
    ),
    "wait_k:k=3,detection=adaptive@segment=280": (
        *("--policy", "wait_k:k=3,detection=adaptive", "--segment-ms", 280),
    ),
}
"""By the setting of the replay: what the live run is asked for."""


def said_of(*arguments: object) -> str:
    """Run a command and return what it says to people."""
    done = earvoice(*arguments)
    done.check_returncode()
    return done.stderr


def released(folder: Path) -> list[tuple[str, tuple[float, ...]]]:
    records = read_records(folder / "instances.log")
    return [(record.text("prediction"), record.numbers("delays")) for record in records]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    samples, rate_hz = soundfile.read(RECORDING, dtype="int16")
    for name, seconds in (("most", 5.6), ("start", 3.1)):
        soundfile.write(tmp_path / f"{name}.wav", samples[: int(seconds * rate_hz)], rate_hz)
    path = tmp_path / "wavs.txt"
    path.write_text("most.wav\nstart.wav\n")
    return path


def test_a_replay_is_what_the_services_say(services: Running, source: Path):
    """Policies that read attention, hypotheses, beams or words, all from one recording."""
    folder = source.parent
    said_of("record", "--source", source, "--segment", "280,800,1000", "--output", folder / "rec")
    settings = [part for name in LIVE for part in ("--policy", name)]
    said_of("replay", folder / "rec", *settings, "--output", folder / "replays")
    for name, options in LIVE.items():
        live = folder / "live" / name
        server = ("--server", services.address, "--no-endpointing")
        said_of("evaluate", "--source", source, *server, *options, "--output", live)
        assert released(folder / "replays" / name) == released(live), name
        assert all(text for text, _ in released(live)), name


def test_what_was_recorded_takes_no_model(services: Running, source: Path):
    """The policy of the run, and another that commits the same, find every hypothesis there."""
    run, replays = source.parent / "run", source.parent / "replays"
    policy = ("--policy", "edatt:alpha=0.3", "--segment-ms", 800, "--no-endpointing", "--record")
    said = said_of(
        *("evaluate", "--source", source, "--server", services.address, *policy),
        *("--output", run),
    )
    assert "2 of 2 are what the services said" in said
    names = ("edatt:alpha=0.3@segment=800", "edatt:alpha=0.3001@segment=800")
    settings = [part for name in names for part in ("--policy", name)]
    nowhere = ("--model", source.parent / "nowhere")
    said = said_of("replay", run, *settings, *nowhere, "--output", replays)
    assert ", 0 searched" in said
    for name in names:
        assert released(replays / name) == released(run)
