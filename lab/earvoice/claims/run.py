"""Runs the plan on one checkpoint: what the encoder hears is recorded once, then replayed."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from earvoice.claims.attention_share import measure_attention
from earvoice.claims.experiment_reader import ATTENTION_FILE, SETTINGS_FOLDER, WORDS_FILE
from earvoice.claims.facts import Facts
from earvoice.claims.plan import TRAINING_PART, Part, parts
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import Grid, RecordedInput, Recording
from earvoice.evaluation.replay.replay_model import load_replay_model
from earvoice.evaluation.replay.replay_run import Replay, ReplayRun
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.models.checkpoint import load_checkpoint

_TOOLS = ("earvoice", "torch", "numpy", "sacrebleu")
SHARES = "shares"
"""The part that asks no policy: where each layer of the decoder looks."""

TRAINING = "training"
"""The part that compares trainings."""

_CPU_FACTS = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class PlanRun:
    """What to run.

    Attributes:
        model: folder of the checkpoint.
        label: short name for tables.
        language: target, BCP-47.
        output: folder of the results; what it holds already is kept.
        parts: names of what is run, see the command line.
        grids_ms: record these segments only; settings with others are left out. Empty: all.
        note: what a reader should know of the checkpoint.
    """

    model: Path
    label: str
    language: str
    output: Path
    parts: Sequence[str]
    grids_ms: tuple[int, ...] = ()
    note: str = ""


def run_plan(run: PlanRun, sources: Sequence[SourceRecording], words: Sequence[str]) -> None:
    """Run it, or go on with it.

    Args:
        run: what to run.
        sources: the test set.
        words: when each word of each of them was spoken (lines of JSON), kept for the report.

    Raises:
        CommandError: a folder holds the run of something else.
        EarvoiceError: a setting is not allowed.
        ModelError: the model cannot be loaded.
        RecordError: an input cannot be encoded.
        RecordingError: a recording was made in another way, or is damaged.
    """
    run.output.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{line}\n" for line in words)
    (run.output / WORDS_FILE).write_text(lines, encoding="utf8")
    layers, heads = _describe(run, sources)
    known = {**parts(layers, heads), TRAINING: TRAINING_PART}
    chosen = [known[name] for name in run.parts if name != SHARES]
    # Together, settings share what is searched.
    for (folder, grids_ms), group in groupby(chosen, lambda part: (part.recording, part.grids_ms)):
        settings = [setting for part in group for setting in part.settings]
        _run_settings(run, sources, Part(folder, run.grids_ms or grids_ms, tuple(settings)))
    if SHARES in run.parts:
        recording = Recording(run.output / known["attention"].recording)
        inputs = _recorded(recording, sources)
        measure_attention(run.model, recording, inputs, run.language, run.output / ATTENTION_FILE)


def _run_settings(run: PlanRun, sources: Sequence[SourceRecording], part: Part) -> None:
    recording = Recording(run.output / part.recording)
    finished = len(recording.inputs()) if recording.folder.exists() else 0
    progress = RunProgress.on_stderr("record", len(sources), finished)
    grids = [Grid(segment_ms) for segment_ms in part.grids_ms]
    record_inputs(run.model, sources, grids, recording, progress)
    replay = ReplayRun(recording, load_replay_model(run.model, recording), run.language)
    folder = run.output / SETTINGS_FOLDER
    replays = [
        Replay(setting, replay.open_folder(folder / setting.name, setting, None))
        for setting in part.recorded_settings
    ]
    inputs = _recorded(recording, sources)
    progress = RunProgress.on_stderr("replay", len(inputs), 0)
    asyncio.run(replay.run(inputs, replays, progress))


def _recorded(recording: Recording, sources: Sequence[SourceRecording]) -> list[RecordedInput]:
    wanted = {source.index for source in sources}
    return [recorded for recorded in recording.inputs() if recorded.index in wanted]


def _describe(run: PlanRun, sources: Sequence[SourceRecording]) -> tuple[int, int]:
    """Write the facts; return the decoder's layers and heads."""
    checkpoint = load_checkpoint(run.model)
    config = checkpoint.config
    Facts(
        label=run.label,
        model_name=config.name,
        model_hash=checkpoint.hash,
        policy_defaults={
            name: value for name, value in asdict(config.policy_defaults).items() if value
        },
        layers=config.decoder.layers,
        heads=config.decoder.heads,
        target_language=run.language,
        inputs=len(sources),
        audio_s=sum(source.duration_ms for source in sources) / 1000,
        versions={"Python": platform.python_version()} | {tool: version(tool) for tool in _TOOLS},
        processor=_processor(),
        note=run.note,
    ).write(run.output)
    return config.decoder.layers, config.decoder.heads


def _processor() -> str:
    """Return the processor's name where the system tells it."""
    lines = _CPU_FACTS.read_text(encoding="utf8").splitlines() if _CPU_FACTS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
