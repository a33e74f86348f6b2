"""A SpeechTranslationService that plays a script, on port 0 behind the real interceptor."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc
from earvoice.runtime.errors import SessionLimitError
from earvoice.runtime.interceptor import StatusInterceptor
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES, server_options

Response = api.StreamingTranslateResponse


class ScriptedService(api_grpc.SpeechTranslationServiceServicer):
    """Answers each audio message with the next entries of the script, and keeps what it got.

    Args:
        words: texts to release, one for each audio message; the rest at the end of the audio.
        failure: raised after that many audio messages, instead of going on.
        fail_after: see ``failure``; 0 fails before the session has started.
    """

    def __init__(
        self,
        words=(),
        failure=None,
        fail_after=0,
        clock=api.ELAPSED_CLOCK_LIVE,
        guards_hit=None,
        max_target_languages=1,
    ):
        self.words = list(words)
        self.failure = failure
        self.fail_after = fail_after
        self.clock = clock
        self.guards_hit = guards_hit or {}
        self.max_target_languages = max_target_languages
        self.segment_samples = 100
        self.configs = []
        self.audio = []
        self.updates = []
        self.unfinished_sessions = 0

    async def StreamingTranslate(self, request_iterator, context):
        finished = False
        try:
            seq = 0
            async for response in self._play(request_iterator):
                response.seq = seq = seq + 1
                yield response
            finished = True
        finally:
            self.unfinished_sessions += not finished

    async def _play(self, request_iterator):
        words = iter(self.words)
        messages = 0
        async for request in request_iterator:
            if request.WhichOneof("message") == "config":
                self.configs.append(request.config)
                self._fail_if_due(messages)
                yield Response(session_started=self._start(request.config))
                continue
            if request.WhichOneof("message") == "update":
                self.updates.append((len(self.audio), request.update))
                continue
            messages += 1
            self.audio.append(request.audio)
            self._fail_if_due(messages)
            if (text := next(words, None)) is not None:
                yield self._release(text)
            yield Response(
                segment_done={"segment": messages, "end_sample": messages * self.segment_samples}
            )
        for text in words:
            yield self._release(text)
        end = {"end_sample": 200, "cause": "UTTERANCE_END_CAUSE_END_OF_AUDIO"}
        yield Response(end_of_utterance={**end, "source_transcript": "heard"})
        yield Response(
            summary={
                "audio_samples": 16_000,
                "word_count": len(self.words),
                "computation_ms": 20,
                "guards_hit": self.guards_hit,
            }
        )

    async def ListModels(self, request, context):
        model = {"name": "m", "version": "1", "target_language_codes": ["de"], "precision": 1}
        return api.ListModelsResponse(
            models=[model],
            policies=["edatt"],
            max_target_languages=self.max_target_languages,
        )

    def _start(self, config):
        return api.SessionStarted(session_id="s1", config=config, elapsed_clock=self.clock)

    def _fail_if_due(self, messages):
        if self.failure is not None and messages == self.fail_after:
            raise self.failure

    def _release(self, text):
        timings = (
            {"total_ms": 5, "encoder_compute_ms": 5}
            if self.configs[-1].enable_stage_timings
            else None
        )
        item = api.CommittedItem(
            text=text.strip(),
            starts_word=text.startswith(" "),
            target_language_code="de",
            source_end_sample=80,
            delay_samples=100,
            elapsed_ms=7,
            stage_timings=timings,
        )
        return Response(committed={"items": [item], "acknowledged_samples": 50})


class RoomForOne(ScriptedService):
    """Refuses every call but the first, after a while in which the first may release words."""

    calls = 0

    async def StreamingTranslate(self, request_iterator, context):
        self.calls += 1
        if self.calls > 1:
            await asyncio.sleep(0.5)
            raise SessionLimitError("1 of 1 sessions are taken", retry_after_ms=2000)
        async for response in super().StreamingTranslate(request_iterator, context):
            yield response


@asynccontextmanager
async def serve(service, certificate=None):
    """Serve on a free port of this machine, over TLS with a certificate, and give its address."""
    server = grpc.aio.server(
        interceptors=[StatusInterceptor(write_timeout_s=10)],
        options=server_options(PUBLIC_MESSAGE_LIMIT_BYTES),
    )
    api_grpc.add_SpeechTranslationServiceServicer_to_server(service, server)
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = certificate.key_file.read_bytes(), certificate.certificate_file.read_bytes()
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
