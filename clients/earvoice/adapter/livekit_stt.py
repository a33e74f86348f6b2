"""Our services as the ears of a LiveKit agent: ``AgentSession(stt=EarvoiceSTT("host:50051"))``.

The words of an utterance come as interim transcripts, each longer than the last; when the utterance
ends, they come as the final one. With a target language other than the speaker's, they are the
translation.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from statistics import fmean
from typing import Any

from livekit import rtc
from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    LanguageCode,
    stt,
)
from livekit.agents.types import NOT_GIVEN, NotGivenOr, TimedString
from livekit.agents.utils import AudioBuffer

from earvoice.adapter.agent_ears import CAPTIONS, Stretches, text_so_far
from earvoice.client import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    Started,
    Summary,
    Tentative,
    TranslationClient,
    TranslationError,
    TranslationEvent,
    TranslationOptions,
    connect,
    join_words,
)
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.tls import ChannelTls


class EarvoiceSTT(stt.STT):  # type: ignore[misc]  # the type checker does not see LiveKit
    """Hears through running services.

    Args:
        server, tls, token: as `earvoice.client.connect` takes them.
        options: a language other than the speaker's is translated into; the audio's format is that
            of the frames.
    """

    def __init__(
        self,
        server: str = "localhost:50051",
        options: TranslationOptions = CAPTIONS,
        *,
        tls: ChannelTls | None = None,
        token: str = "",
    ) -> None:
        super().__init__(
            capabilities=stt.STTCapabilities(
                streaming=True, interim_results=True, aligned_transcript="word"
            )
        )
        self._client = connect(server, tls=tls, token=token)
        self._options = options

    @property
    def model(self) -> str:
        return self._options.model or "default"

    @property
    def provider(self) -> str:
        return "EarVoice"

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> EarvoiceStream:
        """Open a session; `language` is the one that is spoken."""
        options = replace(self._spoken(language), paced=True)
        return EarvoiceStream(self, self._client, options, conn_options)

    async def _recognize_impl(
        self,
        buffer: AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,  # noqa: ARG002 - it is for STT.recognize
    ) -> stt.SpeechEvent:
        frame = rtc.combine_audio_frames(buffer)
        options = replace(self._spoken(language), audio=_format_of(frame))
        reading = _Reading(0.0)
        heard: list[CommittedWord] = []
        async for event in _translated(self._client, _at_once(frame), options):
            reading.read(event)
            if isinstance(event, Committed):
                heard += event.words
        return stt.SpeechEvent(
            stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=reading.said(heard)
        )

    async def aclose(self) -> None:
        await self._client.close()

    def _spoken(self, language: NotGivenOr[str]) -> TranslationOptions:
        return replace(self._options, source_language=language) if language else self._options


class EarvoiceStream(stt.RecognizeStream):  # type: ignore[misc]
    """A session of `EarvoiceSTT`."""

    def __init__(
        self,
        ears: EarvoiceSTT,
        client: TranslationClient,
        options: TranslationOptions,
        conn_options: APIConnectOptions,
    ) -> None:
        super().__init__(stt=ears, conn_options=conn_options)
        self._client, self._options = client, options
        self._sound = Stretches(self._receive)

    async def _run(self) -> None:
        offset_s = self.start_time_offset
        while await self._sound.wait():
            offset_s += await self._hear(offset_s)

    async def _hear(self, offset_s: float) -> float:
        """Translate a stretch of sound, which begins there; return how long it is."""
        assert self._sound.next is not None  # noqa: S101 - it has been waited for
        options = replace(self._options, audio=_format_of(self._sound.next))
        reading = _Reading(offset_s)
        words: list[CommittedWord] = []
        has_begun = False
        duration_s = 0.0
        async for event in _translated(self._client, self._audio(), options):
            reading.read(event)
            if isinstance(event, Committed | Tentative):
                if not has_begun:
                    self._tell(stt.SpeechEventType.START_OF_SPEECH)
                has_begun = True
                words += event.words if isinstance(event, Committed) else ()
                tail = event.text if isinstance(event, Tentative) else ""
                self._tell(stt.SpeechEventType.INTERIM_TRANSCRIPT, reading.said(words, tail))
            if isinstance(event, EndOfUtterance):
                if words:
                    said = reading.said(words, source_text=event.source_transcript)
                    self._tell(stt.SpeechEventType.FINAL_TRANSCRIPT, said)
                if has_begun:
                    self._tell(stt.SpeechEventType.END_OF_SPEECH)
                words, has_begun = [], False
                usage = stt.RecognitionUsage((event.end_ms - event.start_ms) / 1000)
                self._tell(stt.SpeechEventType.RECOGNITION_USAGE, recognition_usage=usage)
            if isinstance(event, Summary):
                duration_s = event.audio_ms / 1000
        return duration_s

    def _tell(
        self, kind: stt.SpeechEventType, said: Sequence[stt.SpeechData] = (), **more: Any
    ) -> None:
        self._event_ch.send_nowait(stt.SpeechEvent(kind, alternatives=[*said], **more))

    async def _receive(self) -> rtc.AudioFrame | None:
        async for frame in self._input_ch:
            # A flush asks for nothing: pauses end utterances, and the services find them.
            if isinstance(frame, rtc.AudioFrame):
                return frame
        return None

    async def _audio(self) -> AsyncIterator[bytes]:
        async for frame in self._sound.chunks():
            yield bytes(frame.data)


class _Reading:
    """What a session's events say, in LiveKit's terms.

    Args:
        offset_s: where the session's audio begins on the stream's clock.
    """

    def __init__(self, offset_s: float) -> None:
        self._offset_s = offset_s
        self._source = self._target = ""

    def read(self, event: TranslationEvent) -> None:
        if isinstance(event, Started):
            self._source = event.source_language
            (self._target,) = event.options.target_languages

    def said(
        self, words: Sequence[CommittedWord], tail: str = "", *, source_text: str = ""
    ) -> list[stt.SpeechData]:
        """Return words, and the tail that may still change, as one alternative."""
        text = text_so_far(words, tail)
        data = stt.SpeechData(language=LanguageCode(self._target), text=text)
        if words:
            timed = self._timed(words)
            data.start_time = min(word.start_time for word in timed)
            data.end_time = max(word.end_time for word in timed)
            data.confidence = fmean(word.confidence for word in words)
            data.words = timed
        if self._source != self._target:
            data.source_languages = [LanguageCode(self._source)]
            data.source_texts = [source_text] if source_text else None
            data.target_languages, data.target_texts = [data.language], [text]
        return [data]

    def _timed(self, words: Sequence[CommittedWord]) -> list[TimedString]:
        whole: list[list[CommittedWord]] = []
        for word in words:
            if word.starts_word or not whole:
                whole.append([])
            whole[-1].append(word)
        return [
            TimedString(
                join_words(pieces),
                start_time=self._offset_s + pieces[0].source_start_ms / 1000,
                end_time=self._offset_s + pieces[-1].source_end_ms / 1000,
                confidence=min(piece.confidence for piece in pieces),
                start_time_offset=self._offset_s,
            )
            for pieces in whole
        ]


def _format_of(frame: rtc.AudioFrame) -> AudioFormat:
    return AudioFormat("linear16", frame.sample_rate, frame.num_channels)


async def _at_once(frame: rtc.AudioFrame) -> AsyncIterator[bytes]:
    yield bytes(frame.data)


async def _translated(
    client: TranslationClient, audio: AsyncIterable[bytes], options: TranslationOptions
) -> AsyncIterator[TranslationEvent]:
    """The session's events; its failures are LiveKit's, which tries again where that helps."""
    try:
        async with aclosing(client.translate(audio, options)) as events:
            async for event in events:
                yield event
    except TranslationError as error:
        if error.passing:
            raise APIConnectionError(str(error)) from error
        raise APIError(str(error), retryable=False) from error
