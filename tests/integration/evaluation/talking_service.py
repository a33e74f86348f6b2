"""A SpeechTranslationService that releases a word with every segment of half a second."""

from __future__ import annotations

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc

Response = api.StreamingTranslateResponse

RATE_HZ = 16_000
SEGMENT_SAMPLES = RATE_HZ // 2
COMPUTATION_MS = 100.0


class TalkingService(api_grpc.SpeechTranslationServiceServicer):
    """Counts audio as the real one does, on the clock ``true``; its words are their numbers.

    Attributes:
        failing_samples: sessions of so much audio fail at their end, with ``failure``.
        failure: what they fail with; None lets all end well.
        refusal: what every session is refused with before it begins; None takes all.
    """

    def __init__(self):
        self.failing_samples = 0
        self.failure = None
        self.refusal = None
        self.model_hash = "f00"
        self.session_count = 0
        self.shown_tokens = set()
        self.most_at_once = 0
        self._running = 0

    async def ListModels(self, request, context):
        return api.ListModelsResponse(models=[self._model()], policies=["edatt"])

    async def StreamingTranslate(self, request_iterator, context):
        if self.refusal is not None:
            raise self.refusal
        self.session_count += 1
        self.shown_tokens.add(dict(context.invocation_metadata()).get("authorization", ""))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            seq = 0
            async for response in self._talk(request_iterator):
                seq += 1
                response.seq = seq
                yield response
        finally:
            self._running -= 1

    async def _talk(self, requests):
        received, segment = 0, 0
        async for request in requests:
            if request.WhichOneof("message") == "config":
                yield Response(
                    session_started={
                        "config": request.config,
                        "model": self._model(),
                        "elapsed_clock": api.ELAPSED_CLOCK_TRUE,
                    }
                )
                continue
            received += len(request.audio) // 2
            while (segment + 1) * SEGMENT_SAMPLES <= received:
                segment += 1
                for response in self._release(segment):
                    yield response
        if self.failure is not None and received == self.failing_samples:
            raise self.failure
        end = {"end_sample": received, "cause": "UTTERANCE_END_CAUSE_END_OF_AUDIO"}
        yield Response(end_of_utterance=end)
        yield Response(summary={"audio_samples": received, "word_count": segment})

    def _release(self, segment):
        end = segment * SEGMENT_SAMPLES
        item = api.CommittedItem(
            text=str(segment),
            starts_word=True,
            target_language_code="de",
            source_end_sample=end - SEGMENT_SAMPLES,
            source_start_sample=end - SEGMENT_SAMPLES,
            delay_samples=end,
            elapsed_ms=1000 * end / RATE_HZ + COMPUTATION_MS,
        )
        yield Response(committed={"items": [item]})
        done = {"segment": segment, "end_sample": end, "computation_ms": COMPUTATION_MS}
        yield Response(segment_done=done)

    def _model(self):
        return {
            "name": "m",
            "version": "1",
            "hash": self.model_hash,
            "source_language_code": "en",
            "target_language_codes": ["de"],
            "precision": 1,
        }
