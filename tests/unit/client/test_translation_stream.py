"""Which losses are outlived, for how long, and where a session goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from earvoice.client.errors import (
    InvalidRequestError,
    ServerBusyError,
    ServerFaultError,
    ServerUnavailableError,
    SessionEndedError,
    TranslationError,
)
from earvoice.client.event import Committed, EndOfUtterance, GoAway, SegmentDone, Tentative
from earvoice.client.translation_stream import (
    LONGEST_PAUSE_S,
    Departure,
    Reconnection,
    ResumePoint,
    is_loss,
)


@dataclass
class Clock:
    now_s: float = 50.0

    def __call__(self) -> float:
        return self.now_s


LOST = ServerUnavailableError("gone", code="UNAVAILABLE")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LOST, True),
        (SessionEndedError("proxy", code="CANCELLED"), True),
        (ServerFaultError("reset", code="INTERNAL"), True),
        (ServerFaultError("proxy", code="UNKNOWN"), True),
        (ServerUnavailableError("draining", code="UNAVAILABLE", reason="NOT_READY"), True),
        (ServerUnavailableError("b", code="UNAVAILABLE", reason="BACKEND_UNAVAILABLE"), True),
        (
            ServerUnavailableError(
                "its audio may be what ends them",
                code="UNAVAILABLE",
                reason="BACKEND_UNAVAILABLE",
                passing=False,
            ),
            False,
        ),
        # Another replica's certificate may be accepted.
        (ServerUnavailableError("certificate", code="UNAVAILABLE", passing=False), True),
        (ServerFaultError("bug", code="INTERNAL", reason="INTERNAL"), False),
        (SessionEndedError("idle", code="DEADLINE_EXCEEDED", reason="IDLE"), False),
        (InvalidRequestError("token", code="FAILED_PRECONDITION", reason="X"), False),
        (ServerBusyError("4 MiB", code="RESOURCE_EXHAUSTED"), False),
    ],
)
def test_what_ends_a_session_is_a_loss_or_final(error: TranslationError, expected: bool):
    """A status without a reason of ours is the transport's; a reason of ours says itself."""
    assert is_loss(error) is expected


def test_the_first_attempt_is_made_at_once_and_later_ones_wait():
    """Pauses double up to a limit; a server's own wish counts within it."""
    trying = Reconnection(1000.0, Clock(), lambda: 1.0)
    pauses = [trying.pause_s(LOST) for _ in range(9)]
    assert pauses[:4] == [0.0, 0.2, 0.4, 0.8]
    assert max(pauses) == LONGEST_PAUSE_S
    busy = ServerBusyError(
        "full", code="RESOURCE_EXHAUSTED", reason="SESSION_LIMIT", retry_after_s=2.0
    )
    again = Reconnection(1000.0, Clock(), lambda: 1.0)
    again.pause_s(LOST)
    assert again.pause_s(busy) == 2.0


def test_a_full_server_is_retried_only_after_a_loss():
    """Who has begun nothing is told at once."""
    busy = ServerBusyError("full", code="RESOURCE_EXHAUSTED", reason="SESSION_LIMIT")
    assert Reconnection(60.0, Clock()).pause_s(busy) is None


def test_a_token_may_be_another_replica_s():
    """One of another model or version may take it; nobody takes one that has expired."""

    def refusal(cause: str) -> InvalidRequestError:
        return InvalidRequestError(
            "no",
            code="FAILED_PRECONDITION",
            reason="INVALID_RESUME_TOKEN",
            metadata={"cause": cause},
        )

    trying = Reconnection(60.0, Clock(), lambda: 1.0)
    assert trying.pause_s(refusal("model")) is None
    trying.pause_s(LOST)
    assert trying.pause_s(refusal("model")) == 0.2
    assert trying.pause_s(refusal("version")) == 0.4
    assert trying.pause_s(refusal("expired")) is None


def test_it_gives_up_when_the_time_is_over():
    """Counted from the loss, and anew once the session has come further."""
    clock = Clock()
    trying = Reconnection(10.0, clock, lambda: 1.0)
    assert trying.pause_s(LOST) == 0.0
    clock.now_s += 9.9
    assert trying.pause_s(LOST) is None
    assert trying.loss is LOST
    trying.note_progress()
    assert trying.pause_s(LOST) == 0.0


def test_zero_never_tries():
    """The error goes to the caller."""
    assert Reconnection(0.0, Clock()).pause_s(LOST) is None


def done(utterance: int, segment: int) -> SegmentDone:
    return SegmentDone(utterance, segment, 0.0, 0.0, 0.0, 0, 0)


def end(utterance: int, token: bytes = b"t") -> EndOfUtterance:
    return EndOfUtterance(utterance, 0.0, 0.0, "pause", "", 500, token)


def test_the_newest_token_counts():
    """With the number of its response, and the audio that is not needed any more."""
    point = ResumePoint()
    assert (point.token, point.seq, point.is_valid) == (b"", 0, True)
    point.note(Committed((), 80, b"a"), 2)
    point.note(done(0, 1), 3)
    assert (point.token, point.seq, point.acknowledged_samples) == (b"a", 2, 80)
    point.note(end(0), 4)
    assert (point.token, point.seq, point.acknowledged_samples) == (b"t", 4, 500)


def test_words_without_a_token_cannot_be_gone_on_from():
    """Until there is one again: the old one would say them twice."""
    point = ResumePoint()
    point.note(Committed((), 80, b"a"), 2)
    point.note(Committed((), 80, b""), 4)
    assert not point.is_valid
    point.note(end(0), 6)
    assert point.is_valid


def test_what_is_told_again_is_no_news():
    """Segments and ends come again after a loss; words never do, and a tail may."""
    point = ResumePoint()
    assert [point.note(done(0, segment), 1) for segment in (1, 2, 2, 1, 4)] == [
        *(True, True),
        *(False, False),
        True,
    ]
    assert point.note(end(0), 1)
    assert not point.note(end(0), 1)
    assert point.note(done(1, 1), 1)
    assert point.note(Tentative("x", "de", 0), 1)
    assert point.note(Committed((), 0, b"t"), 1)


def test_a_resume_point_survives_its_bytes():
    """What another process needs to go on with a session is in the bytes."""
    point = ResumePoint()
    point.note(SegmentDone(2, 3, 0, 0, 0, 0, 0), 41)
    point.note(Committed((), 16_000, b"token"), 42)
    copy = ResumePoint.from_bytes(point.to_bytes())
    assert (copy.token, copy.seq, copy.acknowledged_samples) == (b"token", 42, 16_000)
    assert not copy.note(SegmentDone(2, 3, 0, 0, 0, 0, 0), 43)
    assert copy.note(SegmentDone(2, 4, 0, 0, 0, 0, 0), 44)


@pytest.mark.parametrize("content", [b"", b"x" * 40, b"\xff" * 60])
def test_other_bytes_are_no_resume_point(content):
    """Bytes that nobody gave are refused."""
    with pytest.raises(ValueError, match="no place to resume from"):
        ResumePoint.from_bytes(content)


async def test_a_server_that_goes_away_is_left_once_another_is_found():
    """At the end of an utterance, or before the grace ends; not where only the summary is left."""
    search = asyncio.get_running_loop().create_future()

    class Channels:
        def search_other(self, leaving: object) -> asyncio.Future[None]:
            return search

    clock = Clock()
    departure = Departure(Channels(), None, clock)
    assert not departure.is_due(GoAway(b"token", grace_ms=10_000))
    assert not departure.is_due(EndOfUtterance(0, 0.0, 1.0, "pause", ""))
    search.set_result(None)
    assert not departure.is_due(None)
    assert departure.is_due(EndOfUtterance(1, 1.0, 2.0, "pause", ""))
    assert not departure.is_due(EndOfUtterance(2, 2.0, 3.0, "end_of_audio", ""))
    clock.now_s += 10
    assert departure.is_due(None)
