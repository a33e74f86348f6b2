"""Replays of a recording: any policy, on states that were encoded once.

The decoder is the decoder service's; it is loaded only when a search needs it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from earvoice.api.v1 import types_pb2
from earvoice.cli.command import CommandError, ExitCode, gather
from earvoice.client.options import write_config
from earvoice.decoder.search import SearchStrategy
from earvoice.evaluation.evaluate import describe_session, served_language
from earvoice.evaluation.instance import default_unit
from earvoice.evaluation.log import Record, read_records
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import (
    RECORDING_FOLDER,
    Grid,
    RecordedInput,
    Recording,
    RecordingError,
    read_served_model,
)
from earvoice.evaluation.replay.decoding_cost import COST_FILE, cost_book, measure_cost
from earvoice.evaluation.replay.hypotheses import (
    AttentionChoice,
    OpenedInput,
    SearchBatcher,
    SearchTask,
    search,
)
from earvoice.evaluation.replay.session import RecordedEncoder, ReplayedDecoder, run_session
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run_folder import (
    LOG_NAME,
    SETTINGS_NAME,
    EvaluationFolder,
    RunProgress,
    read_settings,
)
from earvoice.evaluation.source_set import SourceRecording
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.errors import ModelError
from earvoice.policies import choose_policy
from earvoice.policies.registry import POLICIES, with_policy
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import stream_options

INPUTS_AT_ONCE = 12
"""Searching more hypotheses together makes each cheaper; each input takes some 50 MB."""


class Replay:
    """A recording, the model that it was made with, and a target language.

    Args:
        folder: of the recording, or of the run whose log it lies beside.
        language: None takes the model's first.
        limit: only so many first inputs.
        keeps_hypotheses: whether to write hypotheses beside the recording, for later replays.
    """

    def __init__(
        self,
        folder: Path,
        model_path: Path,
        language: str | None = None,
        limit: int | None = None,
        *,
        keeps_hypotheses: bool = False,
    ) -> None:
        if limit is not None and limit < 1:
            raise CommandError(f"--limit {limit} is not allowed; allowed: 1 or more")
        beside_run = folder / RECORDING_FOLDER
        self.recording = Recording(beside_run if beside_run.is_dir() else folder)
        self.model_hash = self.recording.describe().model_hash
        self.served = read_served_model(self.recording.folder)
        languages = self.served.description.target_language_codes
        self.language = served_language("--to", language, languages)
        self.limit = limit
        self.inputs = self.recording.inputs()[:limit]
        if not self.inputs:
            raise CommandError(f"{folder} has no inputs", ExitCode.INPUT)
        self.tally: Counter[str] = Counter()
        self._model_path = model_path
        self._keeps_hypotheses = keeps_hypotheses
        self._opening = (self.served.tokens.end_token, *self.served.language_tokens[self.language])
        self._desk = SearchBatcher(self._search)
        self._cost_of = cost_book(
            self.recording.folder / COST_FILE.format(self.language),
            lambda beam_size: measure_cost(
                self._strategy, self._opening, self.served.dimension, beam_size
            ),
        )

    @cached_property
    def decoder(self) -> CachedDecoder:
        told = self.served.description
        in_bfloat16 = told.precision == types_pb2.ELEMENT_TYPE_BFLOAT16
        torch.set_num_threads(1)
        try:
            checkpoint = load_checkpoint(
                self._model_path, precision="bf16" if in_bfloat16 else "fp32"
            )
        except ModelError as error:
            raise RecordingError(f"model {self._model_path}: {error}") from error
        if checkpoint.hash != told.hash:
            raise RecordingError(
                f"model {self._model_path} has hash {checkpoint.hash}; the recording was made with "
                f"{told.name}, {told.hash}"
            )
        return checkpoint.network.transformer_decoder

    @cached_property
    def _strategy(self) -> SearchStrategy:
        return SearchStrategy(self.decoder)

    def _search(self, tasks: Sequence[SearchTask]) -> None:
        search(self._strategy, self.decoder, self._opening, tasks)

    def options(self, setting: ReplaySetting, sample_rate_hertz: int) -> StreamOptions:
        """Return the options of a setting's sessions, validated as by the service."""
        policies = with_policy(POLICIES, setting.policy)
        config = write_config(setting.options(self.language, sample_rate_hertz))
        return stream_options(config, self.served.description, policies)

    def run(self, settings: Sequence[ReplaySetting], output: Path) -> None:
        """Replay what is not finished yet, each setting in a folder of its name."""
        for setting in settings:
            self.options(setting, self.inputs[0].sample_rate_hertz)
        folders = [
            self.open_folder(output / setting.name, {"replay": setting.name})
            for setting in settings
        ]
        with closing(RunProgress("replay", len(self.inputs), 0)) as progress:
            asyncio.run(self._run(settings, folders, progress))

    def open_folder(self, path: Path, facts: Mapping[str, Any]) -> EvaluationFolder:
        """Open a folder for results; a folder that is continued must have the same settings."""
        settings = {
            **facts,
            "language": self.language,
            "model_hash": self.model_hash,
            "inputs": self.limit,
        }
        folder = EvaluationFolder(path, settings)
        folder.check_sources(recorded.source_recording for recorded in self.inputs)
        return folder

    async def _run(
        self,
        settings: Sequence[ReplaySetting],
        folders: Sequence[EvaluationFolder],
        progress: RunProgress,
    ) -> None:
        finished = [folder.finished() for folder in folders]
        replays = list(zip(settings, folders, finished, strict=True))
        waiting = iter(self.inputs)

        async def work() -> None:
            for recorded in waiting:
                due = [(one, folder) for one, folder, done in replays if recorded.index not in done]
                found = await self.translate(recorded, [one for one, _ in due]) if due else []
                for (_, folder), (line, session) in zip(due, found, strict=True):
                    folder.check_session(session)
                    folder.append(line)
                progress.count(recorded.duration_ms)

        await gather([work() for _ in range(INPUTS_AT_ONCE)])
        for folder in folders:
            folder.complete(default_unit(self.language))

    async def translate(
        self, recorded: RecordedInput, settings: Sequence[ReplaySetting]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return, for each setting, an input's log line and its session."""
        source = self.open(recorded)
        translated = await gather([self.translate_opened(source, setting) for setting in settings])
        if self._keeps_hypotheses:
            source.keep()
        return translated

    def open(self, recorded: RecordedInput) -> OpenedInput:
        return OpenedInput(self.recording, recorded, self.language, self._desk, self.tally)

    async def translate_opened(
        self, source: OpenedInput, setting: ReplaySetting
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        recorded = source.recorded
        options = self.options(setting, recorded.sample_rate_hertz)
        shown = AttentionChoice(
            options.attention_layer, tuple(options.attention_heads), setting.attention
        )
        decoder = ReplayedDecoder(
            source,
            shown,
            len(self._opening),
            self.served.tokens,
            self._cost_of,
            uses_drafts=setting.uses_drafts,
        )
        encoder = RecordedEncoder(source, options.audio_format.frame_bytes)
        collector = await run_session(
            options, encoder, decoder, self.served.description, recorded.sample_count
        )
        if collector.started is None:
            raise RuntimeError("the session has not begun")
        line = collector.finish(recorded.source_recording, self.language)
        return line, describe_session(collector.started)


def record_run(
    folder: Path, sources: Sequence[SourceRecording], model_path: Path, policy_file: str = ""
) -> tuple[ReplaySetting, int, tuple[int, ...]]:
    """Record what a live run translated, its revisions and its hypotheses, beside its log.

    The services send a client neither states nor attention, so both are recomputed with the same
    model, and the run is replayed: the result must equal the services' output.

    Args:
        folder: of the run; endpointing and history selection were off.
        policy_file: ``FILE.py:CLASS`` if the run's policy came from a file.

    Returns:
        Its setting, how many inputs were compared, and the indices of those whose replay differs.
    """
    session = read_settings(folder / SETTINGS_NAME).get("session")
    if session is None:
        raise RecordingError(f"{folder}: nothing was translated that could be recorded")
    options = session["options"]
    parameters = {name: value for name, value in options["policy"].items() if name != "name"}
    setting = ReplaySetting(
        choose_policy(policy_file or options["policy"]["name"], **parameters),
        options["segment_ms"],
        options["initial_wait_ms"] or None,
        options["beam_size"],
        uses_guards=not options["disable_guards"],
        commit_unit=options["commit_unit"],
        min_confidence=options["min_confidence"],
    )
    said = {int(record.number("index")): record for record in read_records(folder / LOG_NAME)}
    finished = [source for source in sources if source.index in said]
    recording = Recording(folder / RECORDING_FOLDER)
    grid = Grid(setting.segment_ms or 0, setting.initial_wait_ms or 0)
    progress = RunProgress("record", len(finished), len(recording.inputs()))
    record_inputs(model_path, finished, [grid], recording, progress, session["model_hash"])
    replay = Replay(folder, model_path, options["target_languages"][0], keeps_hypotheses=True)
    return setting, *asyncio.run(_compare(replay, setting, said))


async def _compare(
    replay: Replay, setting: ReplaySetting, said: Mapping[int, Record]
) -> tuple[int, tuple[int, ...]]:
    different: list[int] = []
    with closing(RunProgress("replay", len(replay.inputs), 0)) as progress:
        for recorded in replay.inputs:
            ((line, _),) = await replay.translate(recorded, [setting])
            record = said[recorded.index]
            told = record.text("prediction"), list(record.numbers("delays"))
            if (line["prediction"], line["delays"]) != told:
                different.append(recorded.index)
            progress.count(recorded.duration_ms)
    return len(replay.inputs), tuple(different)
