"""Choices of a translation on the command line."""

import argparse

import pytest

from earvoice.cli.command import CommandError
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_translation_options,
)
from earvoice.client.audio_format import AudioFormat
from earvoice.client.options import TranslationOptions
from earvoice.client.policy import Edatt


def read(*arguments, paced=False):
    """Return the options that the arguments stand for."""
    parser = argparse.ArgumentParser()
    add_language_arguments(parser)
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    parser.set_defaults(interim=False, transcript=False, stage_timings=False)
    return read_translation_options(parser.parse_args(arguments), AudioFormat(), "de", paced=paced)


@pytest.mark.parametrize(("paced", "catch_up"), [(False, "every-segment"), (True, "merge")])
def test_the_default_catch_up_follows_the_speed(paced, catch_up):
    """Files at full speed decide every segment, live audio merges; all else is left open."""
    expected = TranslationOptions(("de",), AudioFormat(), catch_up=catch_up, paced=paced)
    assert read(paced=paced) == expected
    assert read("--catch-up", "merge", paced=paced).catch_up == "merge"


def test_a_policy_and_its_parameters():
    """Only what was given is sent."""
    options = read("--policy", "edatt", "--alpha", "0.3", "--lambda-states", "4")
    assert options.policy == Edatt(alpha=0.3, lambda_states=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "3"], "--k needs --policy"),
        (["--policy", "edatt", "--k", "3"], "k is no parameter of policy edatt"),
        (["--policy", "often"], "policy = 'often' is not allowed"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_told(arguments, message):
    """Before anything is started."""
    with pytest.raises(CommandError, match=message):
        read(*arguments)
