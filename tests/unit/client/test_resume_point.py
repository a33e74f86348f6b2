"""Where to go on, and what was told already."""

from __future__ import annotations

from earvoice.client.event import Committed, EndOfUtterance, SegmentDone, Tentative
from earvoice.client.resume_point import ResumePoint


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
