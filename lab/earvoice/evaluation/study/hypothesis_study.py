"""What hypotheses without a forced prefix tell: the oracle, attention's shares and pictures."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import torch

from earvoice.evaluation.curve.table import Cell
from earvoice.evaluation.replay.replay_run import OpenedInput, ReplayRun
from earvoice.evaluation.replay.sweep import ReplaySweep
from earvoice.evaluation.run.run_folder import RunFolder
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.simuleval_writer import describe_instance
from earvoice.evaluation.study.attention_picture import draw_attention
from earvoice.evaluation.study.attention_share import SHARES, attention_shares
from earvoice.evaluation.study.oracle import translate_by_oracle
from earvoice.evaluation.study.partial_hypothesis import PartialHypothesis, find_partial_hypotheses
from earvoice.evaluation.study.study_table import oracle_name
from earvoice.evaluation.text_unit import default_unit

MOST_TOKENS = 100
"""A hypothesis that has not ended by then repeats itself."""


def study_hypotheses(
    sweep: ReplaySweep, segment_ms: int, picture_count: int, output: Path
) -> list[dict[str, Cell]]:
    """Write the oracle's log and the pictures.

    Args:
        sweep: the recording.
        segment_ms: duration of a segment.
        picture_count: of how many inputs there shall be pictures.
        output: where they go.

    Returns:
        A row for each layer: the mean shares of its attention, an input counts once.

    Raises:
        CommandError: the oracle's folder holds something else.
        RecordingError: a boundary of these segments was not recorded.
    """
    settings = {
        "oracle": segment_ms,
        "language": sweep.language,
        "model_hash": sweep.model.served.facts.hash,
        "inputs": sweep.limit,
    }
    folder = RunFolder(output / oracle_name(segment_ms), settings)
    folder.check_sources(recorded.source_recording for recorded in sweep.inputs)
    shares = asyncio.run(_study_inputs(sweep, segment_ms, picture_count, folder))
    folder.complete(default_unit(sweep.language))
    if not shares:
        return []
    means = torch.stack(shares).mean(0).tolist()
    return [
        {"layer": layer, **dict(zip(SHARES, values, strict=True))}
        for layer, values in enumerate(means, start=1)
    ]


async def _study_inputs(
    sweep: ReplaySweep, segment_ms: int, picture_count: int, folder: RunFolder
) -> list[torch.Tensor]:
    run, finished = sweep.open_run(), folder.finished()
    shares: list[torch.Tensor] = []
    inputs = sweep.inputs
    progress = RunProgress.on_stderr("oracle", len(inputs), 0)
    with closing(progress):
        for recorded in inputs:
            opened = run.open(recorded)
            hypotheses = await find_partial_hypotheses(opened, segment_ms, MOST_TOKENS)
            share = attention_shares(hypotheses)
            if share is not None:
                shares.append(share)
            if recorded.index not in finished:
                folder.append(describe_instance(await translate_by_oracle(run, opened, segment_ms)))
            if recorded.index < picture_count:
                _draw(run, opened, hypotheses, folder.path.parent)
            progress.count(recorded.duration_ms)
    return shares


def _draw(
    run: ReplayRun, opened: OpenedInput, hypotheses: list[PartialHypothesis], output: Path
) -> None:
    """Draw the last beginning: the longest row of states before the audio has ended."""
    last = next((one for one in reversed(hypotheses) if one.found is not None), None)
    if last is None or last.found is None or last.found.weights.shape[-1] == 1:
        return
    layers = range(1, last.found.weights.shape[0] + 1)
    index = opened.recorded.index
    title = f"input {index}, the first {last.end_ms / 1000:g} s"
    path = output / f"attention_{index:04d}.png"
    draw_attention(last.found, layers, run.tokens, title, path)
