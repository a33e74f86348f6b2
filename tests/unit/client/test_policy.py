"""Choosing a decision policy by name."""

import pytest
from hypothesis import given

from earvoice.api.v1 import decision_policy_pb2
from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.model_description import read_catalog
from earvoice.policies import POLICIES, WaitK, choose_policy, format_policy, parse_policy
from earvoice.runtime.parameter import parameters_of
from tests.unit.client.policies import POLICY


@pytest.mark.parametrize("name", ["wait_k", "wait-k"])
def test_a_policy_is_found_by_either_spelling(name):
    """Hyphens may stand for underscores."""
    assert choose_policy(name, k=5, detection="adaptive") == WaitK(k=5, detection="adaptive")


def test_every_policy_can_be_chosen_without_parameters():
    """What is left open takes the model's values."""
    assert [choose_policy(name) for name in POLICIES] == [policy() for policy in POLICIES.values()]


def test_an_unknown_policy_names_the_known_ones():
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=r"'often' is not allowed; allowed: edatt, .*offline"):
        choose_policy("often")


def test_an_unknown_parameter_names_the_known_ones():
    """The message says which parameters the policy has."""
    with pytest.raises(ValueError, match=r"wait-k:alpha is not a parameter; allowed: k, "):
        choose_policy("wait-k", alpha=0.3)


@given(POLICY)
def test_a_policy_survives_its_text(policy):
    """Every parameter of every policy can be written on one line, and read back."""
    assert parse_policy(format_policy(policy)) == policy


def test_a_text_may_be_written_by_hand():
    """Hyphens, blanks and flags as a person types them."""
    expected = WaitK(k=5, detection="adaptive", count_partial_word=False)
    assert parse_policy("wait-k:k=5, detection=adaptive, count-partial-word=false") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("often:k=3", "policy = 'often' is not allowed"),
        ("offline:n=3", "offline:n is not a parameter; allowed: none"),
        ("hold-n:n", "hold-n:n is not an assignment; allowed: PARAMETER=VALUE"),
        ("hold-n:n=3,n=4", "hold-n:n is given twice"),
        ("hold-n:n=few", "hold-n:n = 'few' .*allowed: a whole number from 0 to 64"),
        ("edatt:alpha=low", "edatt:alpha = 'low' .*allowed: a number from 0.0 to 1.0"),
        ("edatt:attention_heads=1+x", r"attention_heads = '1\+x' .*allowed: whole numbers from 1"),
        ("edatt:allow_early_end=maybe", "allow_early_end = 'maybe' .*allowed: true or false"),
        ("wait-k:detection=loose", "detection = 'loose' .*allowed: fixed, adaptive"),
    ],
)
def test_a_text_that_cannot_be_meant_is_told(text, message):
    """The message names the parameter, its value, and what is allowed."""
    with pytest.raises(ValueError, match=message):
        parse_policy(text)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (
            {"edatt": {"alpha": 2.5, "attention_heads": [1, 17]}},
            "edatt:alpha=2.5,attention_heads=1+17",
        ),
        ({"wait_k": {"k": 65, "detection": 1}}, "wait_k:k=65,detection=fixed"),
        ({"wait_k": {"detection": 9}}, "wait_k:detection=9"),
        ({"named": {"name": "hold_n", "parameters": {"words": {"integer": 2}}}}, "hold_n:words=2"),
        ({"named": {"name": "share", "parameters": {"share": {"number": 0.3}}}}, "share:share=0.3"),
    ],
)
def test_a_newer_servers_default_is_shown_as_it_is_told(told, text):
    """One policy that cannot be read here hides no model."""
    model = {"default_policies": {"de": told, "es": {"hold_n": {"n": 3}}, "fr": {}}}
    (read,) = read_catalog(api.ListModelsResponse(models=[model])).models
    assert read.default_policies == {"de": text, "es": "hold_n:n=3"}


def test_every_policy_of_the_wire_has_its_class():
    """Same names, same parameters; the transducer has none, and needs no message."""
    wire = dict(decision_policy_pb2.DecisionPolicy.DESCRIPTOR.fields_by_name)
    del wire["named"]
    parameters = {name: set(field.message_type.fields_by_name) for name, field in wire.items()}
    parameters["transducer"] = set()
    assert parameters == {name: set(parameters_of(c)) for name, c in POLICIES.items()}
