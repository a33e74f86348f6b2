"""Replays a recording: input by input, all settings at once, each through the real session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.client.audio_format import AudioFormat
from earvoice.client.event_reader import EventReader
from earvoice.client.session_config import write_config
from earvoice.evaluation.recording import RecordedInput, Recording
from earvoice.evaluation.replay.beam_search import BeamSearch, BeamTask
from earvoice.evaluation.replay.decoding_cost import COST_FILE, CostBook, measure_cost
from earvoice.evaluation.replay.hypothesis_file import (
    hypothesis_path,
    read_hypotheses,
    write_hypotheses,
)
from earvoice.evaluation.replay.hypothesis_source import HypothesisSource, SourceTally
from earvoice.evaluation.replay.parallel_search import Memory, ParallelSearch
from earvoice.evaluation.replay.replay_model import ReplayModel
from earvoice.evaluation.replay.replayed_decoder import DecoderTerms, ReplayedDecoder
from earvoice.evaluation.replay.revision_table import RecordedEncoder, RevisionTable
from earvoice.evaluation.replay.search import Search
from earvoice.evaluation.replay.search_desk import SearchDesk
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run.collector import Collector
from earvoice.evaluation.run.evaluation_run import describe_session
from earvoice.evaluation.run.run_folder import RunFolder
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.simuleval_writer import describe_instance
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.evaluation.run.translated_recording import TranslatedRecording
from earvoice.evaluation.text_unit import default_unit
from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import MESSAGE_LIMIT_BYTES, AudioBuffer
from earvoice.policy.event import Event
from earvoice.policy.session import TranslationSession
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.response import ResponseWriter

INPUTS_AT_ONCE = 12
"""The more hypotheses are searched together, the less each costs; each input holds some 50 MB."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Replay:
    """A setting and where its log goes."""

    setting: ReplaySetting
    folder: RunFolder


class ReplayRun:
    """One model on one recording.

    Args:
        recording: what was heard.
        model: the decoder.
        language: BCP-47 tag of the target.
        keeps_hypotheses: write what is found beside the recording, for later replays.

    Attributes:
        tally: how often the memo knew.
    """

    def __init__(
        self,
        recording: Recording,
        model: ReplayModel,
        language: str,
        *,
        keeps_hypotheses: bool = False,
    ) -> None:
        self._recording = recording
        self._model = model
        self._language = language
        self._keeps_hypotheses = keeps_hypotheses
        # What is not needed is not loaded: a memo that knows everything needs no network.
        self._greedy_desk = SearchDesk(self._search_greedily)
        self._beam_desk = SearchDesk(self._search_beams)
        self._costs = CostBook(
            recording.folder / COST_FILE,
            lambda beam_size: measure_cost(model.strategy, model.served.dimension, beam_size),
        )
        self.tally = SourceTally()

    def _search_greedily(self, searches: Sequence[Search]) -> None:
        self._greedy.run(searches)

    def _search_beams(self, tasks: Sequence[BeamTask]) -> None:
        self._beams.run(tasks)

    def _open_states(self, states: torch.Tensor) -> Memory:
        return self._greedy.open_states(states)

    @cached_property
    def _greedy(self) -> ParallelSearch:
        return ParallelSearch(self._model.decoder, self._model.opening(self._language))

    @cached_property
    def _beams(self) -> BeamSearch:
        opening = self._model.opening(self._language)
        return BeamSearch(self._model.strategy, self._greedy, opening)

    def options(self, setting: ReplaySetting, sample_rate_hertz: int) -> StreamOptions:
        """Return what a setting's sessions do, checked as the service does.

        Raises:
            EarvoiceError: a value is not allowed.
        """
        config = write_config(setting.options(self._language, sample_rate_hertz))
        return stream_options(config, self._model.description)

    def open_folder(self, path: Path, setting: ReplaySetting, limit: int | None) -> RunFolder:
        """Return the folder of a setting's log, new or to go on with.

        Raises:
            CommandError: it holds something else.
        """
        description = self._recording.describe()
        settings = {
            "replay": setting.name,
            "language": self._language,
            "model_hash": description.model_hash,
            "inputs": limit,
        }
        return RunFolder(path, settings)

    async def run(
        self, inputs: Sequence[RecordedInput], replays: Sequence[Replay], progress: RunProgress
    ) -> None:
        """Replay what is not finished yet.

        Raises:
            RecordingError: a setting asks for what was not recorded.
        """
        finished = [replay.folder.finished() for replay in replays]
        waiting = iter(inputs)

        async def work() -> None:
            for recorded in waiting:
                due = [
                    replay
                    for replay, known in zip(replays, finished, strict=True)
                    if recorded.index not in known
                ]
                if due:
                    await self._replay(recorded, due)
                progress.count(recorded.duration_ms)

        await _gather([work() for _ in range(INPUTS_AT_ONCE)])
        for replay in replays:
            replay.folder.complete(default_unit(self._language))
        progress.close()

    async def translate(
        self, recorded: RecordedInput, settings: Sequence[ReplaySetting]
    ) -> list[tuple[TranslatedRecording, dict[str, Any]]]:
        """Return what each setting makes of an input, and what the session said of itself.

        Raises:
            RecordingError: a setting asks for what was not recorded.
        """
        table = RevisionTable(self._recording, recorded, self._open_states)
        path = hypothesis_path(self._recording.folder, recorded.index, self._language)
        known = read_hypotheses(path)
        source = HypothesisSource(table, self._greedy_desk, self._beam_desk, self.tally, known)
        translated = await _gather(
            [self._translate(recorded, setting, table, source) for setting in settings]
        )
        if self._keeps_hypotheses:
            write_hypotheses(path, source.known())
        return translated

    async def _replay(self, recorded: RecordedInput, replays: Sequence[Replay]) -> None:
        translated = await self.translate(recorded, [replay.setting for replay in replays])
        for replay, (recording, session) in zip(replays, translated, strict=True):
            replay.folder.check_session(session)
            replay.folder.append(describe_instance(recording))

    async def _translate(
        self,
        recorded: RecordedInput,
        setting: ReplaySetting,
        table: RevisionTable,
        source: HypothesisSource,
    ) -> tuple[TranslatedRecording, dict[str, Any]]:
        options = self.options(setting, recorded.sample_rate_hertz)
        terms = DecoderTerms(
            options.attention_layer,
            tuple(options.attention_heads),
            setting.attention,
            len(self._model.opening(self._language)),
            setting.uses_drafts,
        )
        decoder = ReplayedDecoder(source, terms, self._model.served.tokens, self._costs)
        collector = Collector(default_unit(self._language))
        await _run_session(
            options,
            RecordedEncoder(table, options.audio_format.frame_bytes),
            decoder,
            _Telling(collector, options, self._model),
            recorded.sample_count,
        )
        if collector.started is None:
            raise RuntimeError("the session has not begun")
        session = describe_session(collector.started)
        named = SourceRecording(
            recorded.index, Path(recorded.source), recorded.duration_ms, recorded.reference
        )
        return collector.finish(named, self._language), session


async def _gather(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Do all at once and return what they return; the first failure ends them all."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class _Telling:
    """Tells a collector of a session's events as a client would hear of them."""

    def __init__(self, collector: Collector, options: StreamOptions, model: ReplayModel) -> None:
        rate_hertz = options.audio_format.sample_rate_hertz
        self._collector = collector
        self._writer = ResponseWriter(options)
        self._reader = EventReader(AudioFormat("mulaw", rate_hertz, 1), lambda: 0.0)
        started = public_pb.SessionStarted(
            config=effective_config(options, model.description),
            model=model.description,
            server_version=version("earvoice"),
            elapsed_clock=public_pb.ELAPSED_CLOCK_TRUE,
        )
        collector.add(self._reader.read(self._writer.started(started)))

    async def tell(self, event: Event) -> None:
        self._collector.add(self._reader.read(self._writer.response(event)))


async def _run_session(
    options: StreamOptions,
    encoder: RecordedEncoder,
    decoder: ReplayedDecoder,
    telling: _Telling,
    sample_count: int,
) -> None:
    """Run the policy service's session on audio that nobody reads."""
    audio = AudioBuffer(options.audio_format.frame_bytes, sample_count + 1)
    for start in range(0, sample_count, MESSAGE_LIMIT_BYTES):
        await audio.append(bytes(min(MESSAGE_LIMIT_BYTES, sample_count - start)), 0.0)
    await audio.end()
    arrivals = ArrivalClock(options.audio_format.sample_rate_hertz)
    session = TranslationSession(
        options, encoder, decoder, audio, arrivals, telling.tell, lambda: 0.0
    )
    await telling.tell(await session.run())
