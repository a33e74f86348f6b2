"""Our services in a Pipecat pipeline: ``Pipeline([transport.input(), EarvoiceSTTService(), …])``.

In the speaker's language, an utterance's words come as interim transcriptions, each longer than the
last, and at its end as a transcription. In another language they come as they are released, so that
a voice after this processor interprets while the speaker is still talking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InterimTranscriptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TranscriptionFrame,
    TranslationFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import STTService
from pipecat.transcriptions.language import Language
from pipecat.utils.time import time_now_iso8601

from earvoice.adapter.agent_ears import CAPTIONS, Stretches, text_so_far
from earvoice.client import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    Started,
    Tentative,
    TranslationError,
    TranslationEvent,
    TranslationOptions,
    connect,
)
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.tls import ChannelTls

RETRY_AFTER_S = 1.0
"""Where the server does not say when to come again."""


class EarvoiceSTTService(STTService):  # type: ignore[misc]  # the type checker does not see Pipecat
    """Hears through running services.

    A translation's pieces carry their blanks. Each utterance's stand between the two frames that
    mark a response, as a language model's would, so that its last sentence is spoken at once.

    Args:
        server, tls, token: as `earvoice.client.connect` takes them.
        options: a language other than the speaker's is translated into; the audio's format is the
            pipeline's.
        arguments: of Pipecat's own service.
    """

    def __init__(
        self,
        server: str = "localhost:50051",
        options: TranslationOptions = CAPTIONS,
        *,
        tls: ChannelTls | None = None,
        token: str = "",
        **arguments: Any,
    ) -> None:
        settings = STTSettings(
            model=options.model or None, language=options.source_language or None
        )
        super().__init__(settings=settings, **arguments)
        self._client = connect(server, tls=tls, token=token)
        self._options = options
        self._audio: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self._source = self._target = ""
        self._words: list[CommittedWord] = []

    def can_generate_metrics(self) -> bool:
        return True

    async def setup(self, setup: FrameProcessorSetup) -> None:
        await super().setup(setup)
        self._listening = self.create_task(self._listen())

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Take audio; what is heard in it is pushed when it has been decided."""
        self._audio.put_nowait(audio)
        yield None

    async def stop(self, frame: EndFrame) -> None:
        """End the audio, and wait for its last words: they come before the end of the pipeline."""
        self._audio.put_nowait(None)
        if self._listening is not None:
            await self._listening
            self._listening = None
        await super().stop(frame)

    async def cancel(self, frame: CancelFrame) -> None:
        await super().cancel(frame)
        await self._leave()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._leave()
        await self._client.close()

    async def _leave(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await self.cancel_task(listening)

    async def _update_settings(self, delta: STTSettings) -> dict[str, Any]:
        changed: dict[str, Any] = await super()._update_settings(delta)
        self._warn_unhandled_updated_settings(changed)
        return changed

    async def _listen(self) -> None:
        """Translate until the audio ends, in a new session where one could not go on."""
        audio_format = AudioFormat("linear16", self.sample_rate)
        options = replace(self._options, audio=audio_format, paced=True)
        sound = Stretches(self._audio.get)
        while await sound.wait():
            try:
                async with aclosing(self._client.translate(sound.chunks(), options)) as events:
                    async for event in events:
                        await self._tell(event)
            except TranslationError as error:
                await self._end_utterance()
                await self.push_error(
                    str(error), exception=error, force_treat_as_permanent=not error.passing
                )
                if not error.passing:
                    return
                await asyncio.sleep(error.retry_after_s or RETRY_AFTER_S)

    async def _tell(self, event: TranslationEvent) -> None:
        match event:
            case Started(options=options):
                self._source = event.source_language
                (self._target,) = options.target_languages
            case Committed(words=words) if self._target == self._source:
                self._words += words
                await self._push(InterimTranscriptionFrame, text_so_far(self._words))
            case Committed(words=words):
                if not self._words:
                    await self.push_frame(LLMFullResponseStartFrame())
                self._words += words
                for word in words:
                    blank = " " if word.starts_word else ""
                    await self._push(TranslationFrame, blank + word.text)
            case Tentative(text=text) if self._target == self._source:
                await self._push(InterimTranscriptionFrame, text_so_far(self._words, text))
            case EndOfUtterance():
                await self._end_utterance()

    async def _end_utterance(self) -> None:
        words, self._words = self._words, []
        if not words:
            return
        await self.emit_stt_usage_metrics()
        if self._target == self._source:
            await self._push(TranscriptionFrame, text_so_far(words), finalized=True)
        else:
            await self.push_frame(LLMFullResponseEndFrame())

    async def _push(self, kind: type[Any], text: str, **more: Any) -> None:
        frame = kind(text, self._user_id, time_now_iso8601(), _language(self._target), **more)
        frame.includes_inter_frame_spaces = kind is TranslationFrame
        await self.push_frame(frame)


def _language(tag: str) -> Language | None:
    """Pipecat's name of a language; None where it has none."""
    try:
        return Language(tag)
    except ValueError:
        return None
