"""Times of requests: what is the network's and what our own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.request_clock import RequestClock


def test_without_long_turns_all_that_the_service_does_not_know_is_network():
    """What it says it took is taken off."""
    hop = RequestClock(lambda: 0.0).timings(types_pb2.Timings(elapsed_ms=0.0, compute_ms=0.0))
    assert 0 <= hop.network_ms == hop.round_trip_ms


@given(st.floats(0, 10), st.floats(0, 1e4))
def test_long_turns_are_no_network_and_never_more_than_there_is(
    starved_s: float, elapsed_ms: float
):
    """The service's own time stays whole."""
    readings = iter([0.0, starved_s])
    clock = RequestClock(lambda: next(readings))
    hop = clock.timings(types_pb2.Timings(elapsed_ms=elapsed_ms, compute_ms=elapsed_ms / 2))
    assert hop.queue_ms + hop.compute_ms == hop.elapsed_ms
    if starved_s > 5:
        # More than the whole test takes.
        assert hop.network_ms < 1e-9
