"""What a session tells its client, and its state between two segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from earvoice.policy.endpoints import EndCause, SegmentGrid
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.utterance import UtteranceState
from earvoice.policy.words import Word


@dataclass(frozen=True)
class WordsReleased:
    """Words are released; audio before ``acknowledged_samples`` is never needed again.

    Attributes:
        snapshot: the session after this segment; None if it cannot be resumed.
    """

    items: Sequence[Word]
    acknowledged_samples: int
    snapshot: SessionSnapshot | None = None


@dataclass(frozen=True)
class TailChanged:
    text: str
    utterance: int


@dataclass(frozen=True)
class SegmentWorked:
    """A segment has been processed, with or without words; its fields are the message's.

    Attributes:
        merged_segments: grid segments merged into it beyond the first.
        hypothesis_tokens: of the whole hypothesis; it and its two counts are set only on request.
    """

    utterance: int
    segment: int
    end_sample: int
    computation_ms: float
    queue_ms: float
    merged_segments: int
    item_count: int
    hypothesis_tokens: Sequence[int] = ()
    prefix_token_count: int = 0
    committed_token_count: int = 0
    ends_utterance: bool = False


@dataclass(frozen=True)
class UtteranceEnded:
    """Everything of an utterance has been released.

    Attributes:
        not_understood: start and end of the audio whose words were held back to the end; None if
            none were.
    """

    utterance: int
    start_sample: int
    end_sample: int
    cause: EndCause
    source_transcript: str
    not_understood: tuple[int, int] | None = None
    snapshot: SessionSnapshot | None = None


@dataclass(frozen=True)
class ReplicaLeaving:
    """This replica is going away; the session may run on for the grace."""

    grace_s: float


@dataclass
class SessionTotals:
    """A session's running totals; also its last event, whose message has the same fields.

    Attributes:
        guards_hit: times each guard cut a commit, by its name.
        replays: times an encoder or decoder was lost and its work done again elsewhere.
    """

    audio_samples: int = 0
    item_count: int = 0
    word_count: int = 0
    utterance_count: int = 0
    segment_count: int = 0
    merged_segments: int = 0
    computation_ms: float = 0.0
    guards_hit: Mapping[str, int] = field(default_factory=dict)
    replays: int = 0
    utterances_not_understood: int = 0

    def add_segment(self, event: SegmentWorked) -> None:
        self.segment_count += 1
        self.merged_segments += event.merged_segments
        self.computation_ms += event.computation_ms

    def since(self, before: SessionTotals) -> SessionTotals:
        """Return what was added after earlier totals; the guards' count stays whole."""
        counted = {name: value for name, value in vars(self).items() if name != "guards_hit"}
        added = {name: value - getattr(before, name) for name, value in counted.items()}
        return replace(self, **added)


Event = (
    WordsReleased | TailChanged | SegmentWorked | UtteranceEnded | ReplicaLeaving | SessionTotals
)


@dataclass(frozen=True)
class SessionSnapshot:
    """A session after a segment; by default before its first.

    Attributes:
        options: what the client asked for, updates included, before any lag is held.
        grid: boundaries of the utterance's segments; None before the first one is processed.
        lag_ms: position on the lag scale; None without a target lag.
        true_finished_ms: when the segment was finished, on the true clock.
        origin_s: when the session's first sample existed, on its monotonic clock; None where its
            times are not wall-clock times.
    """

    options: StreamOptions
    utterance: UtteranceState = field(default_factory=UtteranceState)
    grid: SegmentGrid | None = None
    lag_ms: float | None = None
    decided_sample: int = 0
    true_finished_ms: float = 0.0
    origin_s: float | None = None
    totals: SessionTotals = field(default_factory=SessionTotals)
    segment: SegmentWorked | None = None
    end: UtteranceEnded | None = None

    @property
    def start_sample(self) -> int:
        return self.utterance.start_sample

    @property
    def told(self) -> SessionSnapshot:
        """The same session once its pending messages have been sent."""
        return replace(self, segment=None, end=None)
