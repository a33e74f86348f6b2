"""Many settings on one recording, each with a folder of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from earvoice.cli.command import CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.recording import RECORDING_FOLDER, RecordedInput, Recording
from earvoice.evaluation.replay.hypothesis_source import SourceTally
from earvoice.evaluation.replay.replay_model import ReplayModel, load_replay_model
from earvoice.evaluation.replay.replay_run import Replay, ReplayRun
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run.run_progress import RunProgress


class ReplaySweep:
    """A recording, the model that it was made with, and a language.

    Args:
        folder: of the recording, or of a run that was recorded.
        model_path: the checkpoint.
        language: BCP-47 tag of the target; None takes the model's first.
        limit: the first so many inputs only.

    Raises:
        CommandError: the language is not served, the limit is below 1, or there are no inputs.
        RecordingError: this is no recording.
    """

    def __init__(
        self, folder: Path, model_path: Path, language: str | None, limit: int | None
    ) -> None:
        if limit is not None and limit < 1:
            raise CommandError(f"--limit {limit} is not allowed; allowed: 1 or more")
        beside_run = folder / RECORDING_FOLDER
        self.recording = Recording(beside_run if beside_run.is_dir() else folder)
        self.recording.describe()
        self.model: ReplayModel = load_replay_model(model_path, self.recording)
        self.language = self._checked_language(language)
        self.limit = limit
        self.inputs: list[RecordedInput] = self.recording.inputs()[:limit]
        if not self.inputs:
            raise CommandError(f"{folder} has no inputs", ExitCode.INPUT)

    def open_run(self) -> ReplayRun:
        """Return a run that knows nothing yet."""
        return ReplayRun(self.recording, self.model, self.language)

    def replay(self, settings: Sequence[ReplaySetting], output: Path) -> SourceTally:
        """Replay what is not finished yet.

        Args:
            settings: each once.
            output: a folder in it for each setting, named as it.

        Returns:
            How often hypotheses were known.

        Raises:
            CommandError: a folder holds something else.
            EarvoiceError: a setting has a value that is not allowed.
            RecordingError: a setting asks for what was not recorded.
        """
        run = self.open_run()
        for setting in settings:
            run.options(setting, self.inputs[0].sample_rate_hertz)
        replays = [
            Replay(setting, run.open_folder(output / setting.name, setting, self.limit))
            for setting in settings
        ]
        progress = RunProgress.on_stderr("replay", len(self.inputs), 0)
        asyncio.run(run.run(self.inputs, replays, progress))
        return run.tally

    def _checked_language(self, language: str | None) -> str:
        languages = self.model.served.facts.target_languages
        if language is not None and language not in languages:
            raise CommandError(f"--to {language} is not served; served: {', '.join(languages)}")
        return language or languages[0]
