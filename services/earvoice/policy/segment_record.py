"""What became of one segment and when, filled in while it is worked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest
from earvoice.policy.decisions.base import Decision, Hypothesis
from earvoice.policy.endpoint import Endpoint
from earvoice.policy.event import ReleasedItem
from earvoice.policy.segment_grid import Segment
from earvoice.policy.timeline import StageTimings


@dataclass(slots=True)
class SegmentRecord:
    """One segment; moments are on the session's monotonic clock, in s, None while not reached.

    Attributes:
        utterance: from 0.
        utterance_start_sample: where it began.
        policy: name of the policy that decides.
        segment: its place on the grid.
        grid_arrival_s: when the last sample on its own grid was there.
        started_s: when work on it could begin.
        arrival_lateness_ms: how much later `grid_arrival_s` was than the session's first sample
            made expect.
        encoding_s: the encoder is asked.
        encoded_s: its last answer is here.
        decoding_s: the decoder is asked.
        deciding_s: the deciding answer is here.
        committed_s: tokens are committed.
        released_s: their words are in the outbox.
        decoded_s: the generation has ended.
        state_count: encoder states.
        replay_count: how often it went to another replica because one was lost.
        endpoint: of the utterance, if this segment is its last.
        request: what was decoded; None for nothing.
        proposed_token_count: new tokens that came of it before the decision.
        accepted_token_count: new tokens that the policy would commit.
        committed_token_count: left of them by guards and word border.
        generation: its end.
        guards: those that cut the commit.
        stages: of what is committed in this segment.
        items: released.
    """

    utterance: int
    utterance_start_sample: int
    policy: str
    segment: Segment
    grid_arrival_s: float
    started_s: float
    arrival_lateness_ms: float
    encoding_s: float | None = None
    encoded_s: float | None = None
    decoding_s: float | None = None
    deciding_s: float | None = None
    committed_s: float | None = None
    released_s: float | None = None
    decoded_s: float | None = None
    state_count: int = 0
    replay_count: int = 0
    endpoint: Endpoint | None = None
    request: GenerationRequest | None = None
    proposed_token_count: int = 0
    accepted_token_count: int = 0
    committed_token_count: int = 0
    generation: GenerationEnd | None = None
    guards: tuple[str, ...] = ()
    stages: StageTimings | None = None
    items: Sequence[ReleasedItem] = ()

    def encoded(self, encoded: Encoded, endpoint: Endpoint | None, now_s: float) -> None:
        """The encoder has answered, and the utterance's end is known if it has one here."""
        self.encoded_s = now_s
        self.state_count = encoded.evidence.state_count
        self.endpoint = endpoint

    def decoding(self, request: GenerationRequest, now_s: float) -> None:
        """A generation is asked for."""
        self.decoding_s = now_s
        self.request = request

    def decided(self, hypothesis: Hypothesis, decision: Decision, committed_count: int) -> None:
        """It is known how many tokens are committed."""
        self.proposed_token_count = len(hypothesis.tokens)
        self.accepted_token_count = decision.new_token_count
        self.committed_token_count = committed_count

    def committing(self, now_s: float) -> float:
        """Tokens are committed now; return the moment."""
        self.committed_s = now_s
        return now_s

    def released(self, stages: StageTimings, items: Sequence[ReleasedItem], now_s: float) -> None:
        """What was committed has become words, and they are on their way."""
        self.stages = stages
        self.items = items
        self.released_s = now_s

    def decoded(self, end: GenerationEnd | None, now_s: float) -> None:
        """The generation is over."""
        self.generation = end
        self.decoded_s = now_s
