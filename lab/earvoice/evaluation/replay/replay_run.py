"""Replays a recording: input by input, all settings at once, each through the real session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

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
from earvoice.evaluation.replay.replayed_session import EventTeller, run_session
from earvoice.evaluation.replay.revision_table import RecordedEncoder, RevisionTable
from earvoice.evaluation.replay.search import Search
from earvoice.evaluation.replay.search_desk import SearchDesk
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run.collector import Collector
from earvoice.evaluation.run.evaluation_run import describe_session
from earvoice.evaluation.run.run_folder import RunFolder
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.simuleval_writer import describe_instance
from earvoice.evaluation.run.translated_recording import TranslatedRecording
from earvoice.evaluation.text_unit import default_unit
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import stream_options

INPUTS_AT_ONCE = 12
"""The more hypotheses are searched together, the less each costs; each input holds some 50 MB."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Replay:
    """A setting and where its log goes."""

    setting: ReplaySetting
    folder: RunFolder


@dataclass(frozen=True)
class OpenedInput:
    """An input, its revisions, and what is found on them."""

    recorded: RecordedInput
    table: RevisionTable
    source: HypothesisSource


class ReplayRun:
    """One model on one recording.

    Args:
        recording: what was heard.
        model: the decoder.
        language: BCP-47 tag of the target.
        keeps_hypotheses: write what is found beside the recording, for later replays.

    Attributes:
        tally: how often the memo knew.
        tokens: what each token writes.
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
        self.tokens = model.served.tokens

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
            CommandError: a folder holds replays of another test set.
            RecordingError: a setting asks for what was not recorded.
        """
        for replay in replays:
            replay.folder.check_sources(recorded.source_recording for recorded in inputs)
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
        opened = self.open(recorded)
        translated = await _gather([self.translate_opened(opened, setting) for setting in settings])
        if self._keeps_hypotheses:
            write_hypotheses(self._hypothesis_path(recorded), opened.source.known())
        return translated

    def open(self, recorded: RecordedInput) -> OpenedInput:
        """Return an input with what is known of it.

        Raises:
            RecordingError: a file of it is damaged.
        """
        table = RevisionTable(self._recording, recorded, self._open_states)
        known = read_hypotheses(self._hypothesis_path(recorded))
        source = HypothesisSource(table, self._greedy_desk, self._beam_desk, self.tally, known)
        return OpenedInput(recorded, table, source)

    def _hypothesis_path(self, recorded: RecordedInput) -> Path:
        return hypothesis_path(self._recording.folder, recorded.index, self._language)

    async def _replay(self, recorded: RecordedInput, replays: Sequence[Replay]) -> None:
        translated = await self.translate(recorded, [replay.setting for replay in replays])
        for replay, (recording, session) in zip(replays, translated, strict=True):
            replay.folder.check_session(session)
            replay.folder.append(describe_instance(recording))

    async def translate_opened(
        self, opened: OpenedInput, setting: ReplaySetting
    ) -> tuple[TranslatedRecording, dict[str, Any]]:
        """Return what one setting makes of an input; see `translate`."""
        recorded = opened.recorded
        options = self.options(setting, recorded.sample_rate_hertz)
        terms = DecoderTerms(
            options.attention_layer,
            tuple(options.attention_heads),
            setting.attention,
            len(self._model.opening(self._language)),
            setting.uses_drafts,
        )
        decoder = ReplayedDecoder(opened.source, terms, self._model.served.tokens, self._costs)
        collector = Collector(default_unit(self._language))
        await run_session(
            options,
            RecordedEncoder(opened.table, options.audio_format.frame_bytes),
            decoder,
            EventTeller(collector, options, self._model.description),
            recorded.sample_count,
        )
        if collector.started is None:
            raise RuntimeError("the session has not begun")
        session = describe_session(collector.started)
        return collector.finish(recorded.source_recording, self._language), session


async def _gather(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Do all at once and return what they return; the first failure ends them all."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
