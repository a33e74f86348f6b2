"""Trace contexts, moments on the wall, and which sessions are traced."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.telemetry.trace_context import (
    draw_traced,
    new_child,
    new_root,
    read_traceparent,
    sampled_parent,
    traceparent_of,
)

VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "abc",
        VALID.upper(),
        VALID.replace("00-", "ff-"),
        VALID + "-more",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    ],
)
def test_a_broken_traceparent_counts_as_none(broken: str):
    """W3C Trace Context 3.2.2: what cannot be read is as if it had not come."""
    assert read_traceparent(broken) is None


def test_a_later_version_may_say_more():
    """What follows the known fields is skipped."""
    assert read_traceparent(VALID.replace("00-", "01-", 1) + "-more") is not None


@given(st.integers(0, 255))
def test_only_a_sampled_trace_is_a_parent(flags: int):
    """The lowest bit says whether the caller keeps its trace."""
    assert (sampled_parent(VALID[:-2] + f"{flags:02x}") is not None) == bool(flags & 1)


def test_a_context_survives_its_message():
    """What is written is what is read."""
    context = new_child(new_root())
    read = read_traceparent(traceparent_of(context))
    assert read is not None
    assert (read.trace_id, read.span_id) == (context.trace_id, context.span_id)
    assert read.trace_flags.sampled


def test_the_share_of_traced_sessions_is_the_ratio():
    """Drawn independently, once a session."""
    draw = random.Random(1).random
    traced = sum(draw_traced("", 0.25, draw) for _ in range(4000))
    assert 900 < traced < 1100


def test_nothing_and_everything():
    """0 draws none, 1 draws all."""
    assert not any(draw_traced("", 0.0) for _ in range(100))
    assert all(draw_traced("", 1.0) for _ in range(100))


def test_the_callers_sampled_trace_is_joined():
    """Whoever keeps a trace wants its rest; whoever does not, says nothing about ours."""
    sampled = traceparent_of(new_root())
    assert draw_traced(sampled, 0.0)
    assert not draw_traced(sampled[:-2] + "00", 0.0)
