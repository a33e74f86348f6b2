"""The decoder of a replay, as the decoder service has it; loaded when a search needs it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from earvoice.api.v1 import types_pb2
from earvoice.cli.command import CommandError, ExitCode, gather
from earvoice.client.options import write_config
from earvoice.decoder.search import SearchStrategy
from earvoice.evaluation.evaluate import describe_session
from earvoice.evaluation.instance import default_unit
from earvoice.evaluation.recording import (
    RECORDING_FOLDER,
    RecordedInput,
    Recording,
    RecordingError,
    read_served_model,
)
from earvoice.evaluation.replay.decoding_cost import COST_FILE, cost_book, measure_cost
from earvoice.evaluation.replay.hypotheses import (
    HypothesisSource,
    SearchDesk,
    hypothesis_path,
    read_hypotheses,
    write_hypotheses,
)
from earvoice.evaluation.replay.revisions import RecordedEncoder, RevisionTable
from earvoice.evaluation.replay.search import AttentionChoice, Searcher, SearchTask
from earvoice.evaluation.replay.session import (
    ReplayedDecoder,
    run_session,
)
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run_folder import EvaluationFolder, RunProgress
from earvoice.evaluation.translated_recording import (
    Collector,
    TranslatedRecording,
    describe_instance,
)
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.errors import ModelError
from earvoice.policies.registry import POLICIES, with_policy
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import stream_options


class ReplayModel:
    """The model that a recording was made with; its network is loaded when a search needs it."""

    def __init__(self, path: Path, recording: Recording) -> None:
        self.served = read_served_model(recording.folder)
        self._path = path

    @cached_property
    def decoder(self) -> CachedDecoder:
        told = self.served.description
        in_bfloat16 = told.precision == types_pb2.ELEMENT_TYPE_BFLOAT16
        torch.set_num_threads(1)
        try:
            checkpoint = load_checkpoint(self._path, precision="bf16" if in_bfloat16 else "fp32")
        except ModelError as error:
            raise RecordingError(f"model {self._path}: {error}") from error
        if checkpoint.hash != told.hash:
            raise RecordingError(
                f"model {self._path} has hash {checkpoint.hash}; the recording was made with "
                f"{told.name}, {told.hash}"
            )
        return checkpoint.network.transformer_decoder

    @cached_property
    def strategy(self) -> SearchStrategy:
        return SearchStrategy(self.decoder)

    def opening(self, language: str) -> tuple[int, ...]:
        return (self.served.tokens.end_token, *self.served.language_tokens[language])


INPUTS_AT_ONCE = 12
"""The more hypotheses are searched together, the less each costs; each input holds some 50 MB."""

Replay = tuple[ReplaySetting, EvaluationFolder]
"""A setting and where its log goes."""


class ReplayRun:
    """One model on one recording.

    ``keeps_hypotheses`` writes what is found beside it, for later replays.
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
        self._desk = SearchDesk(self._search)
        self._cost_of = cost_book(
            recording.folder / COST_FILE,
            lambda beam_size: measure_cost(model.strategy, model.served.dimension, beam_size),
        )
        self.tally: Counter[str] = Counter()
        self.tokens = model.served.tokens

    def _search(self, tasks: Sequence[SearchTask]) -> None:
        self._searcher.run(tasks)

    @cached_property
    def _searcher(self) -> Searcher:
        # What is not needed is not loaded: a memo that knows everything needs no network.
        model = self._model
        return Searcher(model.strategy, model.decoder, model.opening(self._language))

    def options(self, setting: ReplaySetting, sample_rate_hertz: int) -> StreamOptions:
        """Return what a setting's sessions do, checked as the service does."""
        policies = with_policy(POLICIES, setting.policy)
        config = write_config(setting.options(self._language, sample_rate_hertz))
        return stream_options(config, self._model.served.description, policies)

    def open_folder(
        self, path: Path, setting: ReplaySetting, limit: int | None
    ) -> EvaluationFolder:
        description = self._recording.describe()
        settings = {
            "replay": setting.name,
            "language": self._language,
            "model_hash": description.model_hash,
            "inputs": limit,
        }
        return EvaluationFolder(path, settings)

    async def run(
        self, inputs: Sequence[RecordedInput], replays: Sequence[Replay], progress: RunProgress
    ) -> None:
        for _, folder in replays:
            folder.check_sources(recorded.source_recording for recorded in inputs)
        finished = [folder.finished() for _, folder in replays]
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

        await gather([work() for _ in range(INPUTS_AT_ONCE)])
        for _, folder in replays:
            folder.complete(default_unit(self._language))
        progress.close()

    async def translate(
        self, recorded: RecordedInput, settings: Sequence[ReplaySetting]
    ) -> list[tuple[TranslatedRecording, dict[str, Any]]]:
        """Return what each setting makes of an input, and what the session said of itself."""
        source = self.open(recorded)
        translated = await gather([self.translate_opened(source, setting) for setting in settings])
        if self._keeps_hypotheses:
            write_hypotheses(self._hypothesis_path(recorded), source.known())
        return translated

    def open(self, recorded: RecordedInput) -> HypothesisSource:
        table = RevisionTable(self._recording, recorded)
        known = read_hypotheses(self._hypothesis_path(recorded))
        return HypothesisSource(table, self._desk, self.tally, known)

    def _hypothesis_path(self, recorded: RecordedInput) -> Path:
        return hypothesis_path(self._recording.folder, recorded.index, self._language)

    async def _replay(self, recorded: RecordedInput, replays: Sequence[Replay]) -> None:
        translated = await self.translate(recorded, [setting for setting, _ in replays])
        for (_, folder), (recording, session) in zip(replays, translated, strict=True):
            folder.check_session(session)
            folder.append(describe_instance(recording))

    async def translate_opened(
        self, source: HypothesisSource, setting: ReplaySetting
    ) -> tuple[TranslatedRecording, dict[str, Any]]:
        recorded = source.table.recorded
        options = self.options(setting, recorded.sample_rate_hertz)
        decoder = ReplayedDecoder(
            source,
            AttentionChoice(
                options.attention_layer, tuple(options.attention_heads), setting.attention
            ),
            len(self._model.opening(self._language)),
            self._model.served.tokens,
            self._cost_of,
            uses_drafts=setting.uses_drafts,
        )
        collector = Collector(default_unit(self._language))
        await run_session(
            options,
            RecordedEncoder(source.table, options.audio_format.frame_bytes),
            decoder,
            collector,
            self._model.served.description,
            recorded.sample_count,
        )
        if collector.started is None:
            raise RuntimeError("the session has not begun")
        session = describe_session(collector.started)
        return collector.finish(recorded.source_recording, self._language), session


class ReplaySweep:
    """A recording, or that of a run, its model, and a language: None takes the model's first."""

    def __init__(
        self, folder: Path, model_path: Path, language: str | None, limit: int | None
    ) -> None:
        if limit is not None and limit < 1:
            raise CommandError(f"--limit {limit} is not allowed; allowed: 1 or more")
        beside_run = folder / RECORDING_FOLDER
        self.recording = Recording(beside_run if beside_run.is_dir() else folder)
        self.recording.describe()
        self.model = ReplayModel(model_path, self.recording)
        self.language = self._checked_language(language)
        self.limit = limit
        self.inputs: list[RecordedInput] = self.recording.inputs()[:limit]
        if not self.inputs:
            raise CommandError(f"{folder} has no inputs", ExitCode.INPUT)

    def open_run(self) -> ReplayRun:
        return ReplayRun(self.recording, self.model, self.language)

    def replay(self, settings: Sequence[ReplaySetting], output: Path) -> Counter[str]:
        """Replay what is not finished yet, each setting in a folder named as it."""
        run = self.open_run()
        for setting in settings:
            run.options(setting, self.inputs[0].sample_rate_hertz)
        replays = [
            (setting, run.open_folder(output / setting.name, setting, self.limit))
            for setting in settings
        ]
        progress = RunProgress("replay", len(self.inputs), 0)
        asyncio.run(run.run(self.inputs, replays, progress))
        return run.tally

    def _checked_language(self, language: str | None) -> str:
        languages = self.model.served.description.target_language_codes
        if language is not None and language not in languages:
            raise CommandError(f"--to {language} is not served; served: {', '.join(languages)}")
        return language or languages[0]
