"""Runs sessions against scripted engines, interrupts them anywhere, and lets them go on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace

from earvoice.api.v1 import types_pb2
from earvoice.policies import Edatt
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.event import (
    Event,
    SegmentWorked,
    SessionSnapshot,
    SessionTotals,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.evidence import VoiceActivity
from earvoice.policy.resume import TOKEN_LIMIT_BYTES, ResumeTokens, TokenOwner
from earvoice.policy.session import SegmentObserver, TranslationSession
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.words import Word
from earvoice.runtime.audio_format import AudioFormat
from tests.fakes import RATE_HERTZ, ScriptedDecoder, ScriptedEncoder, described_model

OPTIONS = StreamOptions(
    audio_format=AudioFormat("linear16", RATE_HERTZ, 1),
    target_language_code="de",
    policy=Edatt(alpha=0.5, lambda_states=2, attention_layer=1),
    attention_layer=1,
    segment_ms=800,
    merges_segments=False,
)


def run_session(
    messages: Sequence[bytes | StreamOptions],
    options: StreamOptions = OPTIONS,
    encoder: ScriptedEncoder | None = None,
    decoder: ScriptedDecoder | None = None,
    *,
    late: bool = False,
    observer: SegmentObserver | None = None,
    resumed: SessionSnapshot | None = None,
) -> list[Event]:
    """Run a session over audio and updates to its end and return its events, totals last.

    Args:
        late: whether everything has come before the first segment is looked at.
        resumed: a session to go on with; the messages are then of its later audio.
    """
    return asyncio.run(_run(messages, options, encoder, decoder, observer, resumed, late=late))


async def _run(
    messages, options, encoder, decoder, observer, resumed, *, late: bool
) -> list[Event]:
    events: list[Event] = []
    start_sample = resumed.start_sample if resumed else 0
    audio = AudioBuffer(options.audio_format, 10**9, start_sample)
    ticks = itertools.count()

    async def emit(event: Event) -> None:
        events.append(event)

    session = TranslationSession(
        options,
        encoder or ScriptedEncoder(),
        decoder or ScriptedDecoder(),
        audio,
        emit,
        now_s=lambda: 1000.0 + next(ticks) / 1000,
        observer=observer,
        resumed=resumed,
    )

    async def feed() -> None:
        for message in messages:
            if isinstance(message, StreamOptions):
                await session.update(message)
                continue
            arrival_s = 900.0 + audio.received_samples / RATE_HERTZ
            await audio.append(message, arrival_s)
            await asyncio.sleep(0)
        await audio.end()

    if late:
        await feed()
        await session.run()
    else:
        await asyncio.gather(feed(), session.run())
    return events


def seconds(count: float) -> bytes:
    """That much audio; the scripted encoder does not listen."""
    return bytes(int(count * RATE_HERTZ) * 2)


def items_of(events: Sequence[Event]) -> list[Word]:
    return [item for event in events if isinstance(event, WordsReleased) for item in event.items]


MAX_SAMPLES = 120_000
PAUSES = [
    (start, start + RATE_HERTZ) for start in range(RATE_HERTZ * 2, MAX_SAMPLES, RATE_HERTZ * 3)
]


def voice_with_pauses(start: int, end: int) -> VoiceActivity:
    """Speech with a pause of a second after every two."""
    spoken = [
        (max(a, start), min(b, end))
        for a, b in itertools.pairwise([0, *(x for pause in PAUSES for x in pause), MAX_SAMPLES])
        if (a, b) not in PAUSES and a < end and b > start
    ]
    if not spoken:
        return VoiceActivity(False)
    inside = [(a, b) for a, b in PAUSES if spoken[0][0] < a and b < spoken[-1][1]]
    return VoiceActivity(True, spoken[-1][1], inside)


def with_options(**changes) -> StreamOptions:
    """The usual options with some changed."""
    return replace(OPTIONS, **changes)


FRAME_BYTES = 2
MODEL = described_model(default_alpha=0.5, default_attention_layer=1)

Messages = Sequence[bytes | StreamOptions]


def interruptions(events: Sequence[Event]) -> list[tuple[int, SessionSnapshot]]:
    """Every place to go on from: how many events were told by then, and the session there."""
    return [
        (index + 1, event.snapshot)
        for index, event in enumerate(events)
        if isinstance(event, WordsReleased | UtteranceEnded) and event.snapshot is not None
    ]


def through_token(
    snapshot: SessionSnapshot, model: types_pb2.ModelDescription = MODEL
) -> SessionSnapshot:
    """A session as another replica, whose clocks say something else, reads it from a token."""
    keys = [b"k" * 32]
    here = ResumeTokens(keys, 60.0, lambda: 5000.0, lambda: 1000.0)
    there = ResumeTokens(keys, 60.0, lambda: 5001.0, lambda: 77.0)
    owner = TokenOwner("", model, "s", "")
    token = here.make(snapshot, 7, owner)
    assert 0 < len(token) <= TOKEN_LIMIT_BYTES
    resumed, seq, _ = there.take(token, "", lambda _: model)
    assert resumed.options == snapshot.options
    assert seq == 7
    return resumed


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
                (i.text, i.starts_word, i.utterance, i.delay_samples, i.committed.segment)
                for i in event.items
            ]
            items += [(i.source_start_sample, i.source_end_sample) for i in event.items]
            return [(items, event.acknowledged_samples)]
        case SegmentWorked():
            return [replace(event, computation_ms=0.0, queue_ms=0.0)]
        case UtteranceEnded():
            return [replace(event, snapshot=None)]
        case SessionTotals():
            return [replace(event, computation_ms=0.0)]
    return []
