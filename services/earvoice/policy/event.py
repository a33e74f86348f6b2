"""What a session tells its client, in the order it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from earvoice.policy.endpoint import EndCause
from earvoice.policy.timeline import StageTimings

if TYPE_CHECKING:
    from earvoice.policy.resume.snapshot import SessionSnapshot


@dataclass(frozen=True)
class ReleasedItem:
    """A word, or a later piece of the word before; positions in the session's samples.

    Attributes:
        text: without surrounding blanks.
        starts_word: whether a blank belongs before it.
        utterance: from 0.
        source_start_sample: where the audio it attends to begins.
        source_end_sample: where that audio ends.
        delay_samples: audio received when it was released.
        elapsed_ms: since the first sample existed, on the session's clock.
        stages: where its time went.
        commit_segment: segment of the utterance in which its last token was committed.
    """

    text: str
    starts_word: bool
    utterance: int
    source_start_sample: int
    source_end_sample: int
    delay_samples: int
    elapsed_ms: float
    stages: StageTimings
    commit_segment: int = 0


@dataclass(frozen=True)
class WordsReleased:
    """Words are released; audio before ``acknowledged_samples`` is never needed again.

    Attributes:
        snapshot: the session when this segment is over; None where it cannot be resumed.
    """

    items: Sequence[ReleasedItem]
    acknowledged_samples: int
    snapshot: SessionSnapshot | None = None


@dataclass(frozen=True)
class TailChanged:
    """The tail that may still change."""

    text: str
    utterance: int


@dataclass(frozen=True)
class DecidedHypothesis:
    """A segment's hypothesis and what became of it.

    Attributes:
        tokens: ids, forced prefix included, end of sentence not.
        prefix_token_count: how many of them were the forced prefix.
        committed_token_count: how many after the prefix were committed.
    """

    tokens: Sequence[int]
    prefix_token_count: int
    committed_token_count: int


@dataclass(frozen=True)
class SegmentWorked:
    """A segment has been worked on, words or none.

    Attributes:
        utterance: from 0.
        segment: within the utterance, from 1.
        end_sample: where it ends.
        computation_ms: of all services.
        queue_ms: waiting for engines.
        merged_count: grid segments merged into it beyond the first.
        item_count: items released by it.
        hypothesis: what was decoded; None when nothing was.
        ends_utterance: whether the utterance's end follows.
    """

    utterance: int
    segment: int
    end_sample: int
    computation_ms: float
    queue_ms: float
    merged_count: int
    item_count: int
    hypothesis: DecidedHypothesis | None = None
    ends_utterance: bool = False


@dataclass(frozen=True)
class UtteranceEnded:
    """Everything of an utterance has been released.

    Attributes:
        utterance: from 0.
        start_sample: where it began.
        end_sample: where it ended; audio before is never needed again.
        cause: why.
        source_transcript: what was heard, if asked for.
        snapshot: the session now; None where it cannot be resumed.
    """

    utterance: int
    start_sample: int
    end_sample: int
    cause: EndCause
    source_transcript: str
    snapshot: SessionSnapshot | None = None


@dataclass(frozen=True)
class ReplicaLeaving:
    """This replica is going away; the session may run on for the grace."""

    grace_s: float


@dataclass
class SessionTotals:
    """Adds up over a session; also its last event.

    Attributes:
        audio_samples: received.
        item_count: items released.
        word_count: of those, how many begin a word.
        utterance_count: utterances ended.
        segment_count: segments worked on.
        merged_count: grid segments merged away.
        computation_ms: of all services.
        guards_hit: times each guard cut a commit, by its name.
        replay_count: times an encoder or decoder was lost and its work done again elsewhere.
    """

    audio_samples: int = 0
    item_count: int = 0
    word_count: int = 0
    utterance_count: int = 0
    segment_count: int = 0
    merged_count: int = 0
    computation_ms: float = 0.0
    guards_hit: Mapping[str, int] = field(default_factory=dict)
    replay_count: int = 0

    def add_segment(self, event: SegmentWorked) -> None:
        """Count a segment."""
        self.segment_count += 1
        self.merged_count += event.merged_count
        self.computation_ms += event.computation_ms

    def add_items(self, items: Sequence[ReleasedItem]) -> None:
        """Count released items."""
        self.item_count += len(items)
        self.word_count += sum(item.starts_word for item in items)


Event = (
    WordsReleased | TailChanged | SegmentWorked | UtteranceEnded | ReplicaLeaving | SessionTotals
)
