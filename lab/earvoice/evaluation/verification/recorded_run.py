"""A recorded run of the papers' agents: what was heard, decoded and written at every segment."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.evaluation.readers.record import Record


@dataclass(frozen=True)
class RecordedSegment:
    """A segment of a recorded run.

    Attributes:
        hypothesis: tokens of the best hypothesis, prefix included, end of sentence not; None where
            the agent did not decode.
        prefix_count: its leading tokens that had been committed.
        written: tokens written, end of sentence not; None where the run tells only their text.
    """

    hypothesis: tuple[int, ...] | None
    prefix_count: int
    written: tuple[int, ...] | None


@dataclass(frozen=True)
class RecordedInstance:
    """One recording of a run.

    Attributes:
        index: in the run.
        wav: name of the recording.
        source_ms: its length.
        words: of the prediction, without ``</s>``.
        delays_ms: of each word.
        segments: in order; none after an early end.
    """

    index: int
    wav: str
    source_ms: float
    words: tuple[str, ...]
    delays_ms: tuple[float, ...]
    segments: tuple[RecordedSegment, ...]


@dataclass(frozen=True)
class RecordedRun:
    """A run.

    Attributes:
        place: the file, for messages.
        policy: the agents' name of the policy.
        arguments: of the agent.
        segment_ms: length of a segment.
        instances: the recordings.
    """

    place: str
    policy: str
    arguments: Record
    segment_ms: int
    instances: tuple[RecordedInstance, ...]
