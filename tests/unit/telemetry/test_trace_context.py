"""What messages say about the span they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.telemetry.trace_context import (
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
