"""The file with the addresses."""

import json

import pytest

from earvoice.cli.command import CommandError
from earvoice.cli.ready_file import clear, publish


def test_it_is_there_while_the_services_are(tmp_path):
    """Whole, with the public address first, and gone afterwards."""
    path = tmp_path / "ready.json"
    with publish(path, {"policy": "h:1", "encoder": "h:2", "decoder": "h:3"}):
        content = json.loads(path.read_text())
        assert [entry.name for entry in tmp_path.iterdir()] == ["ready.json"]
    assert content == {"address": "h:1", "policy": "h:1", "encoder": "h:2", "decoder": "h:3"}
    assert not path.exists()


def test_what_an_earlier_run_left_is_removed(tmp_path):
    """A supervisor that was killed could not; a wrong folder is told before anything starts."""
    path = tmp_path / "ready.json"
    path.write_text("old")
    clear(path)
    clear(path)
    assert not path.exists()
    with pytest.raises(CommandError, match="there is no folder"):
        clear(tmp_path / "none" / "ready.json")
