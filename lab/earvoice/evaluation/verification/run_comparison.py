"""A recorded instance and ours, segment by segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from earvoice.client.event import Committed, SegmentDone, TranslationEvent
from earvoice.evaluation.verification.recorded_run import RecordedInstance, RecordedSegment

DELAY_TOLERANCE_MS = 0.01
"""Half a sample is more; what is left is rounding."""


@dataclass(frozen=True)
class PlayedSegment:
    """A segment as our services worked on it.

    Attributes:
        end_ms: where it ends in the audio.
        hypothesis: tokens of the best hypothesis, prefix included; None where nothing was decoded.
        prefix_count: its leading tokens that had been committed.
        written: tokens committed.
    """

    end_ms: float
    hypothesis: tuple[int, ...] | None
    prefix_count: int
    written: tuple[int, ...]


@dataclass(frozen=True)
class PlayedInstance:
    """A recording as our services translated it.

    Attributes:
        words: released.
        delays_ms: of each.
        segments: in order, to the end of the audio.
    """

    words: tuple[str, ...]
    delays_ms: tuple[float, ...]
    segments: tuple[PlayedSegment, ...]


@dataclass(frozen=True)
class InstanceComparison:
    """What came of one instance.

    Attributes:
        differences: a line each.
        segment_count: segments compared.
        hypothesis_count: of these, segments whose hypotheses were compared.
        word_count: words compared.
    """

    differences: tuple[str, ...]
    segment_count: int
    hypothesis_count: int
    word_count: int


def played_instance(events: Sequence[TranslationEvent]) -> PlayedInstance:
    """Return what a session told, in order."""
    words: list[str] = []
    delays_ms: list[float] = []
    for event in events:
        if not isinstance(event, Committed):
            continue
        for word in event.words:
            if word.starts_word or not words:
                words.append(word.text)
                delays_ms.append(word.delay_ms)
            else:
                words[-1] += word.text
    segments = [_played_segment(event) for event in events if isinstance(event, SegmentDone)]
    return PlayedInstance(tuple(words), tuple(delays_ms), tuple(segments))


def _played_segment(done: SegmentDone) -> PlayedSegment:
    tokens, prefix_count = done.hypothesis_tokens, done.prefix_token_count
    return PlayedSegment(
        done.end_ms,
        tokens or None,
        prefix_count,
        tokens[prefix_count : prefix_count + done.committed_token_count],
    )


def compare(recorded: RecordedInstance, played: PlayedInstance) -> InstanceComparison:
    """Compare hypotheses, commits, words and delays."""
    place = f"instance {recorded.index}"
    lines = [
        f"{place}, segment {number}{_end(ours)}: {difference}"
        for number, (theirs, ours) in enumerate(
            zip_longest(recorded.segments, played.segments), start=1
        )
        for difference in _compare_segment(theirs, ours)
    ]
    lines += [f"{place}: {difference}" for difference in _compare_words(recorded, played)]
    compared = sum(
        theirs.hypothesis is not None and ours.hypothesis is not None
        for theirs, ours in zip(recorded.segments, played.segments, strict=False)
    )
    return InstanceComparison(tuple(lines), len(recorded.segments), compared, len(recorded.words))


def _end(segment: PlayedSegment | None) -> str:
    return f" (to {segment.end_ms:g} ms)" if segment is not None else ""


def _compare_segment(theirs: RecordedSegment | None, ours: PlayedSegment | None) -> Iterator[str]:
    if ours is None:
        yield "recorded, but not worked on"
        return
    if theirs is None:
        # The recorded agent ended early, and reads no more.
        if ours.written:
            yield f"nothing recorded, committed {list(ours.written)}"
        return
    if not _same_hypothesis(theirs, ours):
        yield (
            f"hypothesis: recorded {_shown(theirs.hypothesis, theirs.prefix_count)}, "
            f"decoded {_shown(ours.hypothesis, ours.prefix_count)}"
        )
    if theirs.written is not None and theirs.written != ours.written:
        yield f"commit: recorded {list(theirs.written)}, committed {list(ours.written)}"


def _same_hypothesis(theirs: RecordedSegment, ours: PlayedSegment) -> bool:
    if ours.hypothesis is None and not theirs.written and theirs.written is not None:
        # With a single state an agent decodes, to write nothing; our services do not decode.
        return True
    # A hypothesis without any token is told like none.
    theirs_told = theirs.hypothesis or None
    return (theirs_told, theirs.prefix_count) == (ours.hypothesis, ours.prefix_count)


def _shown(hypothesis: tuple[int, ...] | None, prefix_count: int) -> str:
    if hypothesis is None:
        return "none"
    return f"{list(hypothesis[:prefix_count])} + {list(hypothesis[prefix_count:])}"


def _compare_words(recorded: RecordedInstance, played: PlayedInstance) -> Iterator[str]:
    if recorded.words != played.words:
        yield f"words: recorded {' '.join(recorded.words)!r}, released {' '.join(played.words)!r}"
        return
    for number, (word, theirs, ours) in enumerate(
        zip(recorded.words, recorded.delays_ms, played.delays_ms, strict=True), start=1
    ):
        if abs(theirs - ours) > DELAY_TOLERANCE_MS:
            yield f"delay of word {number} {word!r}: recorded {theirs:g} ms, released {ours:g} ms"
