"""What the command says of the demo's recording."""

from __future__ import annotations

import json
import sys

from tests.deploy.tool import ROOT, output_of

SPEECH = ROOT / "demo" / "librispeech_1995-1837-0001.wav"


def translate_demo(server: str = "") -> list[str]:
    """The words that a server releases; without one, that services started for it do."""
    command = [sys.executable, "-m", "earvoice.cli", "translate", SPEECH, "--to=de", "--fast"]
    options = [f"--server={server}"] if server else []
    output = output_of(*command, *options, "--format=jsonl")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [event["text"] for event in events if event["type"] == "word"]
