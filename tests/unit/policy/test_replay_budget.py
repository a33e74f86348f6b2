"""How many replicas one utterance may cost."""

from __future__ import annotations

from collections import Counter

import pytest

from earvoice.policy.backends.replay_budget import MAX_REPLAYS_PER_UTTERANCE, ReplayBudget
from earvoice.runtime.errors import BackendUnavailableError


def spent() -> ReplayBudget:
    """A budget with nothing left; audio up to sample 1000 has been sent."""
    budget = ReplayBudget(Counter())
    budget.sent_sample = 1000
    for service in ("encoder", "decoder")[:MAX_REPLAYS_PER_UTTERANCE]:
        budget.spend(service)
    return budget


def test_both_services_share_it():
    """A recording may kill either."""
    with pytest.raises(BackendUnavailableError, match="2 others") as caught:
        spent().spend("encoder")
    assert caught.value.retry_after_ms is None
    assert caught.value.metadata == {"replays": "2"}


def test_another_utterance_has_its_own():
    """Wherever it begins: an utterance may end before the last audio that was sent."""
    budget = spent()
    budget.begin(1, 500)
    budget.spend("encoder")


def test_an_endless_utterance_gets_it_back_with_the_audio_it_forgets():
    """What is no longer heard cannot be what ends replicas."""
    budget = spent()
    budget.begin(0, 999)
    with pytest.raises(BackendUnavailableError):
        budget.spend("encoder")
    budget.begin(0, 1000)
    budget.spend("encoder")
