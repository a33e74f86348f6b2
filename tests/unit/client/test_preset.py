"""The papers' settings by name."""

from collections import Counter

import pytest

from earvoice.client.options import Endpointing, TranslationOptions
from earvoice.client.preset import PAPERS, PRESETS, find_preset
from earvoice.policies import Edatt, FrameSchedule, LocalAgreement, WaitK

PLAIN = TranslationOptions(("de",))


def test_names_are_unique_and_name_their_paper():
    """Every preset can be found, and belongs to a paper that is described."""
    assert max(Counter(preset.name for preset in PRESETS).values()) == 1
    assert {preset.paper for preset in PRESETS} == set(PAPERS)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_no_preset_names_a_layer(preset):
    """Layers of another decoder mean nothing; the model's own is read."""
    assert getattr(preset.policy, "attention_layer", None) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "papi-2023-edatt-0.2",
            TranslationOptions(
                ("de",),
                policy=Edatt(alpha=0.2, lambda_states=2, normalization="l2"),
                segment_ms=800,
                beam_size=5,
            ),
        ),
        (
            "papi-2022-wait-3-adaptive",
            TranslationOptions(
                ("de",), policy=WaitK(k=3, detection="adaptive"), segment_ms=280, beam_size=1
            ),
        ),
        (
            "papi-2022-wait-3-adaptive-released",
            TranslationOptions(
                ("de",),
                policy=WaitK(k=3, detection="adaptive", end_while_reading="commit"),
                segment_ms=320,
                beam_size=5,
                commit_unit="token",
                disable_guards=True,
                endpointing=Endpointing(disabled=True),
            ),
        ),
        (
            "polak-2022-la-2-500-wait",
            TranslationOptions(
                ("de",),
                policy=LocalAgreement(n=2),
                segment_ms=500,
                initial_wait_ms=1500,
                beam_size=5,
            ),
        ),
        (
            "nguyen-2021-k100-s10-n1",
            TranslationOptions(
                ("de",), policy=FrameSchedule(100, 10, 1, max_length_ratio=1.0), beam_size=1
            ),
        ),
    ],
)
def test_a_preset_is_the_paper_s_setting(name, expected):
    """Policy, segments, beam; guards and early ends only where released code has them so."""
    assert find_preset(name).apply(PLAIN) == expected


def test_the_rest_of_the_options_stays():
    """A preset chooses when to speak, not what is spoken."""
    options = TranslationOptions(("es",), model="m", interim=True, segment_ms=2000)
    applied = find_preset("polak-2022-hold-6-250").apply(options)
    assert (applied.target_languages, applied.model, applied.interim) == (("es",), "m", True)
    assert applied.segment_ms == 250


def test_a_parameter_may_be_another():
    """The paper's layer can be forced on a model that has it."""
    policy = find_preset("papi-2023-edatt-0.2:attention_layer=4,alpha=0.15").policy
    assert policy == Edatt(alpha=0.15, lambda_states=2, attention_layer=4, normalization="l2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("papi-2023-edat-0.2", "preset = 'papi-2023-edat-0.2' is not known; nearest: papi-2023-"),
        ("whatever", "nearest: papi-2022-wait-3-fixed and others"),
        ("polak-2022-sp-1-250:k=3", "polak-2022-sp-1-250:k is not a parameter; allowed: n"),
    ],
)
def test_a_preset_that_does_not_exist_is_told(text, message):
    """The message names what is near."""
    with pytest.raises(ValueError, match=message):
        find_preset(text)
