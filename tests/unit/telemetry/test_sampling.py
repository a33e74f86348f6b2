"""Which sessions are traced."""

from __future__ import annotations

import random

from earvoice.telemetry.sampling import SessionSampler
from earvoice.telemetry.trace_context import new_root, traceparent_of


def test_the_share_of_traced_sessions_is_the_ratio():
    """Drawn independently, once a session."""
    sampler = SessionSampler(0.25, random.Random(1).random)
    traced = sum(sampler.traces("") for _ in range(4000))
    assert 900 < traced < 1100


def test_nothing_and_everything():
    """0 draws none, 1 draws all."""
    never, always = SessionSampler(0.0), SessionSampler(1.0)
    assert not any(never.traces("") for _ in range(100))
    assert all(always.traces("") for _ in range(100))


def test_the_callers_sampled_trace_is_joined():
    """Whoever keeps a trace wants its rest; whoever does not, says nothing about ours."""
    sampled = traceparent_of(new_root())
    assert SessionSampler(0.0).traces(sampled)
    assert not SessionSampler(0.0).traces(sampled[:-2] + "00")
