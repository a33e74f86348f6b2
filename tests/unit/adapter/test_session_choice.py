"""What a foreign tool asks for, in the words of our command line."""

from __future__ import annotations

import pytest

from earvoice.adapter.session_choice import DEFAULT_SERVER, choose_session
from earvoice.client.audio_format import AudioFormat
from earvoice.client.policy import Edatt


def test_nothing_said_is_the_default_of_everything_but_catch_up():
    """The tools wait for each segment."""
    choice = choose_session("")
    assert choice.server == DEFAULT_SERVER
    assert choice.options.policy is None
    assert choice.options.catch_up == "every-segment"


def test_the_arguments_of_the_command_are_understood():
    """Server, language, policy, stream; quotes as in a shell."""
    choice = choose_session(
        "--server 'host:1' --to fr --policy edatt:alpha=0.3 --segment-ms 400 --no-endpointing"
    )
    assert choice.server == "host:1"
    assert choice.options.target_languages == ("fr",)
    assert choice.options.policy == Edatt(alpha=0.3)
    assert choice.options.segment_ms == 400
    assert choice.options.endpointing.disabled


def test_audio_and_language_can_be_told_later():
    """Nothing else changes."""
    choice = choose_session("--segment-ms 400").to_language("it")
    options = choice.for_audio(8_000)
    assert options.audio == AudioFormat("float32", 8_000)
    assert options.target_languages == ("it",)
    assert options.segment_ms == 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--tempo 3", "unrecognized arguments: --tempo 3"),
        ("--segment-ms long", "invalid int value"),
        ("--policy cif", "policy = 'cif' is not allowed"),
        ("--catch-up merge", "--catch-up merge is not allowed"),
    ],
)
def test_what_is_wrong_is_told(text, message):
    """An error to be caught, never an exit of the foreign tool."""
    with pytest.raises(ValueError, match=message):
        choose_session(text)
