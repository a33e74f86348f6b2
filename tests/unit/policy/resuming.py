"""Interrupts sessions at every place where they may be, and lets them go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from earvoice.api.v1 import types_pb2
from earvoice.policy.event import (
    Event,
    SegmentWorked,
    SessionTotals,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.resume.seal import Seal
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.resume.token import TOKEN_LIMIT_BYTES, Bearer, TokenMint
from earvoice.policy.stream_options import StreamOptions

FRAME_BYTES = 2
MODEL = types_pb2.ModelDescription(
    name="scripted",
    hash="h1",
    source_language_code="en",
    target_language_codes=["de"],
    decoder_layer_count=6,
    default_policy="edatt",
    default_alpha=0.5,
    default_lambda_states=2,
    default_attention_layer=1,
    default_frames=4,
    default_segment_ms=800,
)

Messages = Sequence[bytes | StreamOptions]


def interruptions(events: Sequence[Event]) -> list[tuple[int, SessionSnapshot]]:
    """Every place to go on from: how many events were told by then, and the session there."""
    return [
        (index + 1, event.snapshot)
        for index, event in enumerate(events)
        if isinstance(event, WordsReleased | UtteranceEnded) and event.snapshot is not None
    ]


def through_token(snapshot: SessionSnapshot) -> SessionSnapshot:
    """A session as another replica, whose clocks say something else, reads it from a token."""
    seal = Seal([b"k" * 32])
    here = TokenMint(seal, 60.0, lambda: 5000.0, lambda: 1000.0)
    there = TokenMint(seal, 60.0, lambda: 5001.0, lambda: 77.0)
    bearer = Bearer("", MODEL, "s", "")
    token = here.make(snapshot, 7, bearer)
    assert 0 < len(token) <= TOKEN_LIMIT_BYTES
    resumed = there.take(token, "", lambda _: MODEL)
    assert resumed.snapshot.options == snapshot.options
    assert resumed.seq == 7
    return resumed.snapshot


def sent_again(messages: Messages, snapshot: SessionSnapshot) -> list[bytes | StreamOptions]:
    """What a client sends to go on: audio from the start, updates that have not been taken."""
    position, again = 0, []
    for message in messages:
        if isinstance(message, StreamOptions):
            if position >= snapshot.decided_sample:
                again.append(message)
            continue
        skipped = max(0, snapshot.start_sample - position)
        position += len(message) // FRAME_BYTES
        if rest := message[skipped * FRAME_BYTES :]:
            again.append(rest)
    return again


def essence(events: Sequence[Event]) -> list[object]:
    """What may not depend on interruptions: all but times, tails and snapshots."""
    return [kept for event in events for kept in _essence(event)]


def _essence(event: Event) -> list[object]:
    match event:
        case WordsReleased():
            items = [
                (i.text, i.starts_word, i.utterance, i.delay_samples, i.commit_segment)
                for i in event.items
            ]
            items += [(i.source_start_sample, i.source_end_sample) for i in event.items]
            return [(items, event.acknowledged_samples)]
        case SegmentWorked():
            return [replace(event, computation_ms=0.0, queue_ms=0.0)]
        case UtteranceEnded():
            return [replace(event, snapshot=None)]
        case SessionTotals():
            # Whether a hypothesis hit its limit is known only after its words have left.
            hits = {name: n for name, n in event.guards_hit.items() if name != "hypothesis_length"}
            return [replace(event, computation_ms=0.0, guards_hit=hits)]
    return []
