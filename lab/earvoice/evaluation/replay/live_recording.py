"""``earvoice evaluate --record``: what a live run met, kept for ``earvoice replay``.

The services tell a client neither states nor attention, so both are computed once more from the
same model, and the run is replayed: what comes out must be what the services said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from earvoice.evaluation.log import read_records
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import RECORDING_FOLDER, Grid, Recording, RecordingError
from earvoice.evaluation.replay.run import ReplayModel, ReplayRun
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run_folder import LOG_NAME, SETTINGS_NAME, RunProgress, read_settings
from earvoice.evaluation.source_set import SourceRecording
from earvoice.policies import choose_policy


def record_run(
    folder: Path, sources: Sequence[SourceRecording], model_path: Path, policy_file: str = ""
) -> tuple[ReplaySetting, int, tuple[int, ...]]:
    """Record a finished run, its revisions and its hypotheses, beside its log.

    Args:
        folder: of the run; endpointing and history selection were off.
        policy_file: ``FILE.py:CLASS`` where the run's policy was of a file.

    Returns:
        Its setting, how many inputs were compared, and the indices of those whose replay says
        something else.
    """
    session = read_settings(folder / SETTINGS_NAME).get("session")
    if session is None:
        raise RecordingError(f"{folder}: nothing was translated that could be recorded")
    setting = _setting(session["options"], policy_file)
    recording = Recording(folder / RECORDING_FOLDER)
    grid = Grid(setting.segment_ms or 0, setting.initial_wait_ms or 0)
    progress = RunProgress("record", len(sources), len(recording.inputs()))
    record_inputs(model_path, sources, [grid], recording, progress, session["model_hash"])
    model = ReplayModel(model_path, recording)
    language = session["options"]["target_languages"][0]
    run = ReplayRun(recording, model, language, keeps_hypotheses=True)
    return setting, *asyncio.run(_replay(run, setting, folder, recording))


async def _replay(
    run: ReplayRun, setting: ReplaySetting, folder: Path, recording: Recording
) -> tuple[int, tuple[int, ...]]:
    said = {
        int(record.number("index")): (record.text("prediction"), record.numbers("delays"))
        for record in read_records(folder / LOG_NAME)
    }
    inputs = [recorded for recorded in recording.inputs() if recorded.index in said]
    different: list[int] = []
    with closing(RunProgress("replay", len(inputs), 0)) as progress:
        for recorded in inputs:
            translated, _ = (await run.translate(recorded, [setting]))[0]
            delays = tuple(unit.delay_ms for unit in translated.units)
            if (translated.prediction, delays) != said[recorded.index]:
                different.append(recorded.index)
            progress.count(recorded.duration_ms)
    return len(inputs), tuple(different)


def _setting(options: Mapping[str, Any], policy_file: str) -> ReplaySetting:
    parameters = {name: value for name, value in options["policy"].items() if name != "name"}
    return ReplaySetting(
        choose_policy(policy_file or options["policy"]["name"], **parameters),
        options["segment_ms"],
        options["initial_wait_ms"] or None,
        options["beam_size"],
        uses_guards=not options["disable_guards"],
        commit_unit=options["commit_unit"],
        min_confidence=options["min_confidence"],
    )
