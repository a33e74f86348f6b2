"""Choices of a translation on the command line."""

import argparse

import pytest

from earvoice.cli.command import CommandError
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_targets,
    read_translation_options,
)
from earvoice.client.options import Endpointing, HistorySelection, TranslationOptions
from earvoice.policies import Edatt, WaitK
from earvoice.runtime.audio_format import AudioFormat


def read(*arguments, paced=False):
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


def test_every_parameter_can_be_given_with_the_name():
    """What has no option of its own, too; an option outranks it."""
    options = read("--policy", "edatt:alpha=0.3,attention_heads=1+3", "--alpha", "0.1")
    assert options.policy == Edatt(alpha=0.1, attention_heads=(1, 3))


def test_a_preset_sets_the_stream_too():
    """Options that are given outrank it."""
    options = read("--preset", "papi-2022-wait-3-adaptive", "--k", "5", "--segment-ms", "400")
    assert options.policy == WaitK(k=5, detection="adaptive")
    assert (options.segment_ms, options.beam_size) == (400, 1)


def test_everything_a_stream_can_be_asked_for():
    """Each option has its place."""
    options = read(
        *("--beam-size", "4", "--history", "8", "--no-guards", "--no-endpointing"),
        *("--initial-wait-ms", "500", "--commit-unit", "token", "--target-lag-ms", "2000"),
    )
    assert options == TranslationOptions(
        ("de",),
        AudioFormat(),
        initial_wait_ms=500,
        catch_up="every-segment",
        commit_unit="token",
        endpointing=Endpointing(disabled=True),
        disable_guards=True,
        beam_size=4,
        history_selection=HistorySelection(8),
        target_lag_ms=2000,
    )


def test_the_last_sentence_may_be_the_history():
    """Instead of a number of words."""
    assert read("--history", "sentence").history_selection == HistorySelection()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "3"], "--k needs --policy"),
        (["--policy", "edatt", "--k", "3"], "edatt:k is not a parameter; allowed: alpha"),
        (["--policy", "often"], "policy = 'often' is not allowed"),
        (["--preset", "papi-2023-la", "--policy", "edatt"], "give one"),
        (
            ["--preset", "papi-2023-la", "--k", "3"],
            "local_agreement:k is not a parameter; allowed: n",
        ),
        (["--preset", "best"], "preset = 'best' is not known.*`earvoice presets` lists them"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_told(arguments, message):
    """Before anything is started."""
    with pytest.raises(CommandError, match=message):
        read(*arguments)


def test_a_command_takes_one_language_or_several():
    """Several may be repeated, or stand in one text; where one is wanted it is the text itself."""
    one, several = argparse.ArgumentParser(), argparse.ArgumentParser()
    add_language_arguments(one)
    add_language_arguments(several, several=True)
    assert one.parse_args(["--to", "de"]).to == "de"
    assert read_targets(several.parse_args(["--to", "de,es", "--to", "fr"])) == ("de", "es", "fr")
    assert read_targets(several.parse_args([])) == ()
