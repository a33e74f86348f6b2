"""Choosing a decision policy by name."""

import pytest

from earvoice.client.policy import POLICIES, Edatt, HoldN, LocalAgreement, WaitK, choose_policy


@pytest.mark.parametrize("name", ["wait_k", "wait-k"])
def test_a_policy_is_found_by_either_spelling(name):
    """Hyphens may stand for underscores."""
    assert choose_policy(name, k=5, detection="adaptive") == WaitK(k=5, detection="adaptive")


def test_every_policy_can_be_chosen_without_parameters():
    """What is left open takes the model's values."""
    assert [choose_policy(name) for name in POLICIES] == [
        Edatt(),
        LocalAgreement(),
        WaitK(),
        HoldN(),
    ]


def test_an_unknown_policy_names_the_known_ones():
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=r"'often' is not allowed; allowed: edatt, .*hold_n"):
        choose_policy("often")


def test_an_unknown_parameter_names_the_known_ones():
    """The message says which parameters the policy has."""
    with pytest.raises(ValueError, match=r"alpha is no parameter of policy wait_k; allowed: k, "):
        choose_policy("wait-k", alpha=0.3)
