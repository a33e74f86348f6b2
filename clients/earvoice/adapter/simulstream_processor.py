"""Our services as a speech processor of simulstream: ``type: earvoice.adapter.simulstream_…``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from simulstream.server.speech_processors import SAMPLE_RATE, SpeechProcessor
from simulstream.server.speech_processors.incremental_output import IncrementalOutput

from earvoice.adapter.blocking_session import BlockingConnection, BlockingSession
from earvoice.adapter.tool_text import choose_session, write_tokens
from earvoice.client.event import CommittedWord
from earvoice.runtime.audio_format import AudioFormat


class EarvoiceProcessor(SpeechProcessor):  # type: ignore[misc]  # simulstream has no types
    """Translates through running services.

    Args:
        config: simulstream's; ``earvoice`` holds arguments of `earvoice evaluate`, and
            ``speech_chunk_size`` should be the segment's length in seconds.

    Raises:
        ValueError: ``earvoice`` has an argument that does not exist or is not allowed.
    """

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__(config)
        server, options = choose_session(getattr(config, "earvoice", ""))
        self._options = replace(options, audio=AudioFormat("float32", SAMPLE_RATE))
        self._connection = BlockingConnection(server)
        self._session: BlockingSession | None = None
        self._last_token = ""

    @classmethod
    def load_model(cls, config: SimpleNamespace) -> None:
        """Load nothing: the services have the model."""

    def process_chunk(self, waveform: Any) -> IncrementalOutput:
        """Send ``[n]`` float32 at 16 kHz; return the words that result."""
        if self._session is None:
            self._session = self._connection.open(self._options)
        return self._output(self._session.push(waveform.astype("<f4").tobytes()))

    def end_of_stream(self) -> IncrementalOutput:
        if self._session is None:
            return self._output(())
        words = self._session.finish()
        self._session = None
        return self._output(words)

    def set_source_language(self, language: str) -> None:
        """Check nothing: the services know their model's source languages."""

    def set_target_language(self, language: str) -> None:
        self._options = replace(self._options, target_languages=(language,))

    def tokens_to_string(self, tokens: list[str]) -> str:
        return " ".join(tokens)

    def clear(self) -> None:
        """Start over with the next recording."""
        if self._session is not None:
            self._session.leave()
        self._session = None
        self._last_token = ""

    def _output(self, words: Sequence[CommittedWord]) -> IncrementalOutput:
        deleted, new, self._last_token = write_tokens(self._last_token, words)
        return IncrementalOutput(
            new, self.tokens_to_string(new), deleted, self.tokens_to_string(deleted)
        )
