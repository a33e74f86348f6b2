"""The policy service's own session, on a recorded encoder and a remembering decoder."""

from __future__ import annotations

from importlib.metadata import version

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.client.audio_format import AudioFormat
from earvoice.client.event_reader import EventReader
from earvoice.evaluation.replay.replayed_decoder import ReplayedDecoder
from earvoice.evaluation.replay.revision_table import RecordedEncoder
from earvoice.evaluation.run.collector import Collector
from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import MESSAGE_LIMIT_BYTES, AudioBuffer
from earvoice.policy.event import Event
from earvoice.policy.session import TranslationSession
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import effective_config
from earvoice.policy.wire.response import ResponseWriter


class EventTeller:
    """Tells a collector of a session's events as a client would hear of them.

    Args:
        collector: is told that the session has begun.
        options: of the session.
        model: as services describe it.
    """

    def __init__(
        self, collector: Collector, options: StreamOptions, model: types_pb2.ModelDescription
    ) -> None:
        rate_hertz = options.audio_format.sample_rate_hertz
        self._collector = collector
        self._writer = ResponseWriter(options)
        self._reader = EventReader(AudioFormat("mulaw", rate_hertz, 1), lambda: 0.0)
        started = public_pb.SessionStarted(
            config=effective_config(options, model),
            model=model,
            server_version=version("earvoice"),
            elapsed_clock=public_pb.ELAPSED_CLOCK_TRUE,
        )
        collector.add(self._reader.read(self._writer.started(started)))

    async def tell(self, event: Event) -> None:
        """Hand an event on."""
        self._collector.add(self._reader.read(self._writer.response(event)))


async def run_session(
    options: StreamOptions,
    encoder: RecordedEncoder,
    decoder: ReplayedDecoder,
    teller: EventTeller,
    sample_count: int,
) -> None:
    """Run the policy service's session on audio that nobody reads."""
    audio = AudioBuffer(options.audio_format.frame_bytes, sample_count + 1)
    for start in range(0, sample_count, MESSAGE_LIMIT_BYTES):
        await audio.append(bytes(min(MESSAGE_LIMIT_BYTES, sample_count - start)), 0.0)
    await audio.end()
    arrivals = ArrivalClock(options.audio_format.sample_rate_hertz)
    session = TranslationSession(
        options, encoder, decoder, audio, arrivals, teller.tell, lambda: 0.0
    )
    await teller.tell(await session.run())
