"""Where an interrupted session can go on, and what its caller has been told."""

from __future__ import annotations

from earvoice.client.event import (
    Committed,
    EndOfUtterance,
    SegmentDone,
    TranslationEvent,
)


class ResumePoint:
    """Follows a session's events.

    Attributes:
        token: to go on with; empty before the first, when a session can only begin anew.
        seq: of the response that it came with.
        acknowledged_samples: audio before this is never needed again.
        is_valid: whether there is a place to go on from: not after words without a token.
    """

    def __init__(self) -> None:
        self.token = b""
        self.seq = 0
        self.acknowledged_samples = 0
        self.is_valid = True
        self._segment = (-1, -1)
        self._ended_utterance = -1

    def note(self, event: TranslationEvent, seq: int) -> bool:
        """Take note of an event; return whether it is news and not told a second time.

        Args:
            event: next in order.
            seq: of its response.
        """
        match event:
            case Committed():
                self._move(event.resume_token, seq, event.acknowledged_samples)
            case EndOfUtterance():
                self._move(event.resume_token, seq, event.acknowledged_samples)
                return self._is_new_end(event)
            case SegmentDone():
                return self._is_new_segment(event)
        return True

    def _move(self, token: bytes, seq: int, acknowledged_samples: int) -> None:
        self.is_valid = bool(token)
        self.token = token
        self.seq = seq
        self.acknowledged_samples = max(self.acknowledged_samples, acknowledged_samples)

    def _is_new_segment(self, event: SegmentDone) -> bool:
        place = (event.utterance, event.segment)
        if place <= self._segment:
            return False
        self._segment = place
        return True

    def _is_new_end(self, event: EndOfUtterance) -> bool:
        if event.utterance <= self._ended_utterance:
            return False
        self._ended_utterance = event.utterance
        return True
