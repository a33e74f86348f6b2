"""A session between two segments as a message, and read back."""

from __future__ import annotations

from dataclasses import replace

from earvoice.api.v1 import resume_state_pb2 as resume_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.event import DecidedHypothesis, SegmentWorked
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.resume.utterance_message import (
    read_tokens,
    read_utterance,
    tokens_message,
    utterance_message,
)
from earvoice.policy.segment_grid import SegmentGrid
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.event_message import (
    end_message,
    read_end,
    read_segment,
    read_totals,
    segment_message,
    totals_message,
)


def session_message(
    snapshot: SessionSnapshot, model: types_pb2.ModelDescription, unix_s: float
) -> resume_pb.ResumeState:
    """Return what a token says of a session itself.

    Args:
        snapshot: the session.
        model: that it is translated by.
        unix_s: Unix time at which its monotonic clock was 0.
    """
    origin_ms = (snapshot.origin_s or 0.0) * 1000
    message = resume_pb.ResumeState(
        config=effective_config(snapshot.options, model),
        lag_ms=snapshot.lag_ms,
        decided_samples=snapshot.decided_sample,
        true_finished_ms=snapshot.true_finished_ms,
        totals=totals_message(snapshot.totals),
        utterance=utterance_message(snapshot.utterance, origin_ms),
    )
    if snapshot.origin_s is not None:
        message.origin_unix_ms = origin_ms + unix_s * 1000
    if snapshot.grid is not None:
        message.grid.CopyFrom(_grid_message(snapshot.grid))
    if snapshot.segment is not None:
        _write_segment(message, snapshot.segment)
    if snapshot.end is not None:
        message.end.CopyFrom(end_message(snapshot.end))
    return message


def read_session(
    message: resume_pb.ResumeState, model: types_pb2.ModelDescription, unix_s: float
) -> SessionSnapshot:
    """Return the session; see `session_message`.

    Raises:
        EarvoiceError: its choices are none that this server allows.
    """
    options = stream_options(message.config, model)
    live = message.HasField("origin_unix_ms")
    origin_s = message.origin_unix_ms / 1000 - unix_s if live else None
    rate_hertz = options.audio_format.sample_rate_hertz
    return SessionSnapshot(
        options,
        read_utterance(message.utterance, (origin_s or 0.0) * 1000),
        _read_grid(message.grid, rate_hertz) if message.HasField("grid") else None,
        message.lag_ms if message.HasField("lag_ms") else None,
        message.decided_samples,
        message.true_finished_ms,
        origin_s,
        read_totals(message.totals),
        _read_segment(message) if message.HasField("segment") else None,
        read_end(message.end) if message.HasField("end") else None,
    )


def _write_segment(message: resume_pb.ResumeState, segment: SegmentWorked) -> None:
    message.segment.CopyFrom(segment_message(replace(segment, hypothesis=None)))
    if segment.hypothesis is not None:
        known = [*message.utterance.prefix, *message.utterance.draft]
        message.hypothesis.CopyFrom(tokens_message(segment.hypothesis.tokens, known))
        message.segment.prefix_token_count = segment.hypothesis.prefix_token_count
        message.segment.committed_token_count = segment.hypothesis.committed_token_count


def _read_segment(message: resume_pb.ResumeState) -> SegmentWorked:
    segment = read_segment(message.segment)
    if not message.HasField("hypothesis"):
        return segment
    known = [*message.utterance.prefix, *message.utterance.draft]
    hypothesis = DecidedHypothesis(
        read_tokens(message.hypothesis, known),
        message.segment.prefix_token_count,
        message.segment.committed_token_count,
    )
    return replace(segment, hypothesis=hypothesis)


def _grid_message(grid: SegmentGrid) -> resume_pb.ResumeGrid:
    return resume_pb.ResumeGrid(
        segment_ms=grid.segment_ms,
        wait_ms=grid.wait_ms,
        anchor_sample=grid.anchor_sample,
        anchor_index=grid.anchor_index,
    )


def _read_grid(message: resume_pb.ResumeGrid, rate_hertz: int) -> SegmentGrid:
    return SegmentGrid(
        rate_hertz,
        message.segment_ms,
        message.wait_ms,
        message.anchor_sample,
        message.anchor_index,
    )
