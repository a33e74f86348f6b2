"""Translating a test set: several streams at once, each finished recording written down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from earvoice.client.audio_file import AudioFile
from earvoice.client.errors import AudioSourceError, TranslationError
from earvoice.client.pacing import FAST_CHUNK_MS, REALTIME_CHUNK_MS, pace, send_fast
from earvoice.evaluation.run.collector import Collector
from earvoice.evaluation.run.simuleval_writer import describe_instance

if TYPE_CHECKING:
    from earvoice.client.event import Started
    from earvoice.client.options import TranslationOptions
    from earvoice.client.translation_client import TranslationClient
    from earvoice.evaluation.run.run_folder import RunFolder
    from earvoice.evaluation.run.run_progress import RunProgress
    from earvoice.evaluation.run.source_list import SourceRecording
    from earvoice.evaluation.text_unit import Unit

# What differs from recording to recording, or changes no result.
_UNCOMPARED_OPTIONS = ("audio", "paced", "interim", "transcript", "stage_timings", "traceparent")


@dataclass(frozen=True)
class RunPlan:
    """How to translate a test set.

    Attributes:
        options: of every session; its audio format is each recording's own.
        unit: what is counted.
        stream_count: sessions at once, 1 or more.
    """

    options: TranslationOptions
    unit: Unit
    stream_count: int


class EvaluationRun:
    """One pass over what is not finished yet.

    Args:
        client: connected to the services.
        plan: how.
        folder: where finished recordings go.
        progress: told of each recording.
    """

    def __init__(
        self,
        client: TranslationClient,
        plan: RunPlan,
        folder: RunFolder,
        progress: RunProgress,
    ) -> None:
        self._client = client
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._failures: list[TranslationError] = []

    async def translate(self, recordings: Sequence[SourceRecording]) -> list[TranslationError]:
        """Translate the recordings and return what failed.

        Raises:
            TranslationError: a session was refused before it began: all others would be.
            CommandError: the services are not those with which the run was begun.
        """
        waiting = iter(recordings)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._plan.stream_count, len(recordings))):
                    group.create_task(self._translate_each(waiting))
        except ExceptionGroup as failures:
            # One failure cancels the other streams: there is only one to tell.
            raise failures.exceptions[0] from None
        return self._failures

    async def _translate_each(self, waiting: Iterator[SourceRecording]) -> None:
        for recording in waiting:
            try:
                await self._translate(recording)
            except TranslationError as error:
                # What is refused before it begins would be refused for every recording.
                if not (error.session_started or isinstance(error, AudioSourceError)):
                    raise
                self._failures.append(error)
                self._progress.fail(f"{recording.path}: {error.message}")
            else:
                self._progress.count(recording.duration_ms)

    async def _translate(self, recording: SourceRecording) -> None:
        options, live = self._plan.options, self._plan.options.paced
        collector = Collector(self._plan.unit, live)
        with AudioFile(recording.path) as audio:
            chunks = (
                pace(audio.chunks(REALTIME_CHUNK_MS), audio.audio)
                if live
                else send_fast(audio.chunks(FAST_CHUNK_MS))
            )
            session = self._client.translate(chunks, replace(options, audio=audio.audio))
            async with aclosing(session) as events:
                async for event in events:
                    collector.add(event)
                    if collector.started is event:
                        self._folder.check_session(describe_session(collector.started))
        translated = collector.finish(recording, options.target_languages[0])
        self._folder.append(describe_instance(translated))


def describe_session(started: Started) -> dict[str, Any]:
    """Return what must be the same for every recording of a run, as the server told it."""
    model = started.model
    return {
        "model": model.name,
        "model_version": model.version,
        "model_hash": model.hash,
        "precision": model.precision,
        "server_version": started.server_version,
        "options": describe_options(started.options),
    }


def describe_options(options: TranslationOptions) -> dict[str, Any]:
    """Return the choices that change results, by name."""
    values = {
        name: value for name, value in asdict(options).items() if name not in _UNCOMPARED_OPTIONS
    }
    if options.policy is not None:
        values["policy"] = {"name": options.policy.NAME, **asdict(options.policy)}
    return values
