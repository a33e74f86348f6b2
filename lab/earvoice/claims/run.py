"""Runs the plan on one checkpoint: what the encoder hears is recorded once, then replayed."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from earvoice.claims.attention_share import measure_attention
from earvoice.claims.experiment_reader import ATTENTION_FILE, SETTINGS_FOLDER
from earvoice.claims.facts import Facts
from earvoice.claims.plan import SCHEDULE_PART, SNAPSHOT_PART, Part, main_part
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import Grid, Recording
from earvoice.evaluation.replay.replay_model import load_replay_model
from earvoice.evaluation.replay.replay_run import Replay, ReplayRun
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.models.checkpoint import load_checkpoint

_TOOLS = ("earvoice", "torch", "numpy", "sacrebleu")
_CPU_FACTS = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class PlanRun:
    """What to run.

    Attributes:
        model: folder of the checkpoint.
        label: short name for tables.
        language: target, BCP-47.
        output: folder of the results; what it holds already is kept.
        parts: names of what is run: ``main``, ``schedules``, ``attention``, ``snapshot``.
    """

    model: Path
    label: str
    language: str
    output: Path
    parts: Sequence[str]


def run_plan(run: PlanRun, sources: Sequence[SourceRecording]) -> None:
    """Run it, or go on with it.

    Raises:
        CommandError: a folder holds the run of something else.
        EarvoiceError: a setting is not allowed.
        ModelError: the model cannot be loaded.
        RecordError: an input cannot be encoded.
        RecordingError: a recording was made in another way, or is damaged.
    """
    run.output.mkdir(parents=True, exist_ok=True)
    layers, heads = _describe(run, sources)
    main = main_part(layers, heads)
    for name in run.parts:
        if name == "attention":
            recording = Recording(run.output / main.name)
            measure_attention(run.model, recording, run.language, run.output / ATTENTION_FILE)
        else:
            part = {"main": main, "schedules": SCHEDULE_PART, "snapshot": SNAPSHOT_PART}[name]
            _run_part(run, sources, part)


def _run_part(run: PlanRun, sources: Sequence[SourceRecording], part: Part) -> None:
    recording = Recording(run.output / part.name)
    finished = len(recording.inputs()) if recording.folder.exists() else 0
    progress = _progress("record", len(sources), finished)
    grids = [Grid(segment_ms) for segment_ms in part.grids_ms]
    record_inputs(run.model, sources, grids, recording, progress)
    replay = ReplayRun(recording, load_replay_model(run.model, recording), run.language)
    folder = run.output / SETTINGS_FOLDER
    replays = [
        Replay(setting, replay.open_folder(folder / setting.name, setting, None))
        for setting in part.settings
    ]
    wanted = {source.index for source in sources}
    inputs = [recorded for recorded in recording.inputs() if recorded.index in wanted]
    progress = _progress("replay", len(inputs), 0)
    asyncio.run(replay.run(inputs, replays, progress))


def _progress(name: str, total: int, finished: int) -> RunProgress:
    return RunProgress(sys.stderr, name, total, finished, on_terminal=sys.stderr.isatty())


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
    ).write(run.output)
    return config.decoder.layers, config.decoder.heads


def _processor() -> str:
    """Return the processor's name where the system tells it."""
    lines = _CPU_FACTS.read_text(encoding="utf8").splitlines() if _CPU_FACTS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
