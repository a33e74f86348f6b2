"""Speaks the wire: one stream, sent at once or message by message, to its status."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import soundfile
from google.rpc import error_details_pb2, status_pb2

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from earvoice.api.v1 import types_pb2

Request = pb.StreamingTranslateRequest
ROOT = Path(__file__).parents[2]
SPEECH = ROOT / "demo" / "librispeech_1995-1837-0001.wav"
RATE_HERTZ = 16_000
OUR_INSIDE = re.compile(
    r"Traceback|\.py\b|site-packages|<class |object at 0x|/(home|opt|tmp|usr|work)/"
)


@dataclass
class Outcome:
    """What a stream gave: every response, and the status with its details."""

    responses: list[pb.StreamingTranslateResponse] = field(default_factory=list)
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    reason: str = ""
    has_retry: bool = False

    def of(self, kind: str) -> list:
        return [getattr(r, kind) for r in self.responses if r.WhichOneof("message") == kind]

    @property
    def items(self) -> list[pb.CommittedItem]:
        return [item for committed in self.of("committed") for item in committed.items]

    @property
    def text(self) -> list[tuple[str, bool, int, int]]:
        """What must not depend on pace or load: text and delays."""
        return [(i.text, i.starts_word, i.utterance, i.delay_samples) for i in self.items]


def config(**changes) -> pb.StreamingConfig:
    fields = {
        "audio_encoding": types_pb2.AUDIO_ENCODING_LINEAR16,
        "sample_rate_hertz": RATE_HERTZ,
        "catch_up": pb.CATCH_UP_EVERY_SEGMENT,
        "target_language_codes": ["de"],
    }
    return pb.StreamingConfig(**(fields | changes))


def speech(path: Path = SPEECH) -> bytes:
    """A recording's samples as LINEAR16, mono."""
    data, rate = soundfile.read(path, dtype="int16", always_2d=True)
    assert rate == RATE_HERTZ
    return data[:, 0].tobytes()


def noise(seconds: float, level: float = 0.1, seed: int = 1) -> bytes:
    samples = np.random.default_rng(seed).normal(0, level, int(seconds * RATE_HERTZ))
    return (samples.clip(-1, 1) * 32767).astype("<i2").tobytes()


def pieces(audio: bytes, size: int = 3200) -> list[bytes]:
    """Audio cut into messages of so many bytes."""
    return [audio[at : at + size] for at in range(0, len(audio), size)]


def requests(audio: bytes, size: int = 3200, **changes) -> list[Request]:
    """A whole stream: config, then audio."""
    return [Request(config=config(**changes))] + [Request(audio=a) for a in pieces(audio, size)]


async def paced(audio: bytes, **changes) -> AsyncIterator[Request]:
    """A whole stream as a microphone sends it: 100 ms every 100 ms."""
    first, *chunks = requests(audio, **changes)
    yield first
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for index, chunk in enumerate(chunks, 1):
        await asyncio.sleep(begin_s + index / 10 - loop.time())
        yield chunk


async def call(address: str, messages: Iterable[Request] | AsyncIterator[Request]) -> Outcome:
    """Send messages, read everything, and return what came."""
    outcome = Outcome()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        try:
            async for response in stub.StreamingTranslate(messages):
                outcome.responses.append(response)
        except grpc.aio.AioRpcError as error:
            note_error(outcome, error)
    return outcome


def note_error(outcome: Outcome, error: grpc.aio.AioRpcError) -> None:
    """Add a status and its ErrorInfo to an outcome."""
    outcome.code, outcome.details = error.code(), error.details() or ""
    raw = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if raw is None:
        return
    status = status_pb2.Status.FromString(raw)
    assert not OUR_INSIDE.search(str(status)), "a status must not tell of paths, code or objects"
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    status.details[0].Unpack(info)
    outcome.reason = info.reason
    outcome.has_retry = any(detail.Unpack(retry) for detail in status.details[1:])


def assert_well_formed(outcome: Outcome) -> None:
    """What every good stream promises, whatever was said."""
    kinds: Sequence[str | None] = [r.WhichOneof("message") for r in outcome.responses]
    assert outcome.code is grpc.StatusCode.OK, outcome.details
    assert [r.seq for r in outcome.responses] == list(range(1, len(kinds) + 1))
    assert (kinds[0], kinds[-1]) == ("session_started", "summary")
    delays = [item.delay_samples for item in outcome.items]
    assert delays == sorted(delays)
    assert all(
        i.source_start_sample < i.source_end_sample <= i.delay_samples for i in outcome.items
    )
    ends = outcome.of("end_of_utterance")
    assert [e.start_sample for e in ends[1:]] == [e.end_sample for e in ends[:-1]]
    summary = outcome.of("summary")[0]
    assert summary.item_count == len(outcome.items)
    assert summary.segment_count == len(outcome.of("segment_done"))
    assert summary.utterance_count == len(ends)


def released_words(items: Iterable[pb.CommittedItem]) -> list[pb.CommittedItem]:
    """Whole words: one that a later piece completes has been released with that piece."""
    words: list[pb.CommittedItem] = []
    for item in items:
        word = pb.CommittedItem()
        word.CopyFrom(item)
        if words and not item.starts_word:
            before = words.pop()
            word.text = before.text + item.text
            word.starts_word = True
            word.source_start_sample = min(before.source_start_sample, item.source_start_sample)
            word.source_end_sample = max(before.source_end_sample, item.source_end_sample)
        words.append(word)
    return words


class OpenStream:
    """A running stream, and what it gave so far."""

    def __init__(self, stream: grpc.aio.StreamStreamCall) -> None:
        self._stream = stream
        self.outcome = Outcome()

    async def send(self, *messages: Request) -> None:
        for message in messages:
            await self._stream.write(message)

    async def end_audio(self) -> None:
        await self._stream.done_writing()

    async def read_until(self, kind: str) -> pb.StreamingTranslateResponse:
        """Read up to the first response of a kind."""
        while True:
            response = await self._stream.read()
            assert response is not grpc.aio.EOF, f"the stream ended before any {kind}"
            self.outcome.responses.append(response)
            if response.WhichOneof("message") == kind:
                return response

    async def read_rest(self) -> Outcome:
        try:
            while (response := await self._stream.read()) is not grpc.aio.EOF:
                self.outcome.responses.append(response)
        except grpc.aio.AioRpcError as error:
            note_error(self.outcome, error)
        return self.outcome


@asynccontextmanager
async def open_stream(
    address: str, options: list | None = None, **changes: object
) -> AsyncIterator[OpenStream]:
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = OpenStream(pb_grpc.SpeechTranslationServiceStub(channel).StreamingTranslate())
        await stream.send(Request(config=config(**changes)))
        yield stream


def audio_messages(audio: bytes) -> list[Request]:
    return [Request(audio=piece) for piece in pieces(audio)]


def halves(audio: bytes) -> tuple[list[Request], list[Request]]:
    """Audio as messages, before and after its middle."""
    messages = audio_messages(audio)
    return messages[: len(messages) // 2], messages[len(messages) // 2 :]
