"""A session between two segments: enough to go on elsewhere as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from earvoice.policy.decisions.base import Token
from earvoice.policy.decisions.snapshot import Snapshot
from earvoice.policy.event import SegmentWorked, SessionTotals, UtteranceEnded
from earvoice.policy.segment_grid import SegmentGrid
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.token_origin import TokenOrigin


@dataclass(frozen=True)
class HeldPiece:
    """The committed beginning of a word that is not complete.

    Attributes:
        text: its bytes, possibly part of a character.
        starts_word: whether it begins a word.
        origin: where it came from.
    """

    text: bytes
    starts_word: bool
    origin: TokenOrigin


@dataclass(frozen=True)
class UtteranceSnapshot:
    """An utterance after a commit, held by no loop; see `Utterance` for what is not said here.

    Attributes:
        kept: the forced prefix, without attention.
        word_end_samples: where the audio of each committed word ends, of those that attend to
            audio which is kept.
        held: what is committed and not released; None for nothing.
        policy: the policy's memory.
    """

    index: int
    begin_sample: int
    start_sample: int
    segment_index: int = 0
    kept: tuple[Token, ...] = ()
    draft: tuple[int, ...] = ()
    word_end_samples: tuple[int, ...] = ()
    written_word_count: int = 0
    written_token_count: int = 0
    spoken_for_sample: int = 0
    is_closed: bool = False
    held: HeldPiece | None = None
    policy: Snapshot = field(default_factory=dict)


@dataclass(frozen=True)
class SessionSnapshot:
    """A session after a segment.

    Attributes:
        options: what the client asked for, updates included, before any lag is held.
        utterance: worked on next.
        grid: its boundaries; None where no segment of it has been worked on.
        lag_ms: place on the scale of lags; None without a target lag.
        decided_sample: audio before this has been decided.
        true_finished_ms: when the segment was finished, on the clock of a `TrueTimeline`.
        origin_s: when the session's first sample existed, on its monotonic clock; None where its
            times are not read on the wall.
        totals: with this segment.
        segment: still to be told.
        end: still to be told after it.
    """

    options: StreamOptions
    utterance: UtteranceSnapshot
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
        """Audio from here on is needed again."""
        return self.utterance.start_sample

    @property
    def told(self) -> SessionSnapshot:
        """The same session once it has told what was still to be told."""
        return replace(self, segment=None, end=None)


def first_snapshot(options: StreamOptions) -> SessionSnapshot:
    """Return the session that nothing has happened in."""
    return SessionSnapshot(options, UtteranceSnapshot(0, 0, 0))
