"""A full replica is not asked again at once."""

from __future__ import annotations

from earvoice.policy.backends.fullness import FULL_S, Fullness
from earvoice.runtime.errors import SessionLimitError

FULL = SessionLimitError("full", retry_after_ms=1)


def test_its_answer_is_believed_for_a_while():
    """Then it is asked again: sessions of others may have ended."""
    now_s = [1000.0]
    fullness = Fullness(lambda: now_s[0])
    assert fullness.answer is None
    fullness.note(FULL)
    now_s[0] += FULL_S - 0.1
    assert fullness.answer is FULL
    now_s[0] += 0.2
    assert fullness.answer is None


def test_it_is_asked_as_soon_as_a_session_has_left_it():
    """There is room now."""
    fullness = Fullness()
    fullness.note(FULL)
    fullness.forget()
    assert fullness.answer is None
