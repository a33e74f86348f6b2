"""Where a model's attention looks, and what any policy could still gain (Papi 2023, section 5).

    python -m earvoice.studies.attention RECORDING --model DIR --policy SETTING --output OUT

The oracle releases each word at the earliest sensible time: once it no longer changes. Every
beginning of the input is translated without a forced prefix. A word of the last translation is
released at the first segment from which on every translation begins with all words up to it. A
policy that writes this text earlier has guessed what a later revision contradicts; the lag of
another one behind the oracle is its headroom.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from earvoice.decoder.strategy import TokenTable
from earvoice.evaluation.collector import describe_segment
from earvoice.evaluation.commands import (
    add_recording_arguments,
    check_segment_ms,
    computing,
    read_settings,
)
from earvoice.evaluation.curves import Cell, CurvePoint, as_text, as_tsv, read_point
from earvoice.evaluation.instance import Unit, default_unit, released_together, split_text
from earvoice.evaluation.recording import Grid
from earvoice.evaluation.replay.hypotheses import Continuation, HypothesisRequest, OpenedInput
from earvoice.evaluation.replay.run import Replay
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run_folder import EvaluationFolder, RunProgress
from earvoice.evaluation.score import ScoringOptions
from earvoice.evaluation.script import run_script
from earvoice.policies.base import longest_common_prefix_tokens

SHARES = ("last state", "last but one", "if all were alike")
MOST_TOKENS = 100
"""A hypothesis that has not ended by then repeats itself."""

_ROW_INCHES = 0.22
_PANEL_WIDTH_INCHES = 4.0
_MARGIN_INCHES = 1.2


async def find_partial_hypotheses(
    source: OpenedInput, segment_ms: int, most_tokens: int
) -> list[tuple[float, Continuation | None]]:
    """Return the end of each full segment but the last, and the translation of the input up to it.

    No prefix is forced; None if there are no states yet.
    """
    recorded = source.recorded

    async def find(end: int) -> tuple[float, Continuation | None]:
        number, _ = source.revision(end, final=False)
        found = None
        if source.state_count(number):
            request = HypothesisRequest(number, (), most_tokens, forbid_end=False)
            found, _ = await source.continuation(request, ())
        return end * 1000 / recorded.sample_rate_hertz, found

    ends = Grid(segment_ms).boundaries(recorded.sample_rate_hertz, recorded.sample_count)
    return list(await asyncio.gather(*map(find, ends)))


async def translate_by_oracle(
    replay: Replay, source: OpenedInput, segment_ms: int
) -> dict[str, Any]:
    """Return the log line of an input's offline translation, each word released once stable.

    Its computation is 0, as there is no policy to time.
    """
    (setting,) = parse_settings(f"offline@segment={segment_ms}")
    line, _ = await replay.translate_opened(source, setting)
    if not line["delays"]:
        return line
    recorded, table = source.recorded, replay.served.tokens
    final, _ = source.revision(recorded.sample_count, final=True)
    found, _ = await source.continuation(HypothesisRequest(final, (), 1, forbid_end=False), ())
    tokens = found.tokens[: len(found.tokens) - found.ended]
    partial = await find_partial_hypotheses(source, segment_ms, len(tokens))
    agreed = [agreed_count(one.tokens, tokens, table) if one else 0 for _, one in partial]
    ends_ms = [end_ms for end_ms, _ in partial]
    stable_ms = stable_from(agreed, ends_ms, len(tokens), recorded.duration_ms)
    ends = unit_ends(tokens, table, default_unit(replay.language))
    # Tokens that the guards cut off at the end have no unit.
    delays_ms = [stable_ms[end - 1] for _, end in zip(line["delays"], ends, strict=False)]
    segments = [
        released_together(end_ms, 0.0, len(list(own))) for end_ms, own in groupby(delays_ms)
    ]
    if segments[-1].end_ms < recorded.duration_ms:
        segments.append(released_together(recorded.duration_ms, 0.0, 0))
    return {
        **line,
        "delays": delays_ms,
        "elapsed": delays_ms,
        "computation_ms": 0.0,
        "segments": [describe_segment(segment) for segment in segments],
    }


def stable_from(
    agreed: Sequence[int], ends_ms: Sequence[float], token_count: int, final_ms: float
) -> list[float]:
    """Return for each token of the last translation the end of the segment that makes it stable.

    Args:
        agreed: for each segment but the last, how many first tokens equal those of the last.
        ends_ms: the end of each of these segments.
        token_count: number of tokens of the last translation.
        final_ms: end of the audio.
    """
    # How many first tokens are stable from each segment on.
    standing = list(accumulate(reversed(agreed), min))[::-1]
    segments = list(zip(ends_ms, standing, strict=True))
    return [
        next((end_ms for end_ms, count in segments if count > place), final_ms)
        for place in range(token_count)
    ]


def agreed_count(hypothesis: Sequence[int], final: Sequence[int], table: TokenTable) -> int:
    """Return how many first tokens a hypothesis shares with the final text, in whole words.

    If the final text has "Haus" and the hypothesis goes on to "Hauses", that word does not count.
    """
    count = longest_common_prefix_tokens([hypothesis, final])
    if count == len(hypothesis) or hypothesis[count] == table.end_token:
        return count
    while count and not table.starts_word[hypothesis[count]]:
        count -= 1
    return count


def unit_ends(tokens: Sequence[int], table: TokenTable, unit: Unit) -> list[int]:
    """Return for each unit of a text how many tokens it and all units before it take."""
    starts = [place for place, token in enumerate(tokens) if table.starts_word[token] or not place]
    ends = [*starts[1:], len(tokens)]
    return [
        end
        for start, end in zip(starts, ends, strict=True)
        for _ in split_text(_text_of(tokens[start:end], table), unit)
    ]


def _text_of(tokens: Sequence[int], table: TokenTable) -> str:
    return b"".join(table.texts[token] for token in tokens).decode("utf8", "replace")


def mean_shares(weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return how much of each layer's attention lies on the newest states.

    Args:
        weights: [layers, heads, n, S] of each beginning; those with one state are left out.

    Returns:
        [layers, 3], as in ``SHARES``: the mean over beginnings, their tokens and the heads; None
        where no beginning has two states.
    """
    segments = []
    for segment in weights:
        rows = segment.mean(dim=(1, 2))
        if rows.shape[-1] > 1:
            even = torch.full_like(rows[:, -1], 1 / rows.shape[-1])
            segments.append(torch.stack([rows[:, -1], rows[:, -2], even], dim=-1))
    return torch.stack(segments).mean(0) if segments else None


def draw_attention(
    found: Continuation, layers: Sequence[int], table: TokenTable, title: str, path: Path
) -> None:
    """Draw the attention of a hypothesis over 2 states or more (Papi 2023, figure 3).

    There is a column of panels for each decoder layer (from 1), averaged over its heads. The upper
    panels show the rows unchanged, the lower ones without the last state and rescaled to length 1
    (EDAtt's ``l2``).
    """
    height = 2 * (_MARGIN_INCHES + _ROW_INCHES * len(found.tokens))
    with mpl.rc_context({"svg.hashsalt": "earvoice"}):
        size = (_PANEL_WIDTH_INCHES * len(layers), height)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title)
        panels = figure.subplots(2, len(layers), squeeze=False, sharey=True)
        for column, layer in enumerate(layers):
            rows = found.weights[layer - 1].mean(0)
            kept = torch.nn.functional.normalize(rows[:, :-1], dim=-1)
            for panel, shown, name in (
                (panels[0][column], rows, "with the last state"),
                (panels[1][column], kept, "without it"),
            ):
                panel.imshow(shown.numpy(), aspect="auto", vmin=0, cmap="viridis")
                panel.set_title(f"layer {layer}, {name}")
                panel.set_xlabel("encoder state")
        for row in panels:
            row[0].set_yticks(range(len(found.tokens)), _labels(found, table))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _labels(found: Continuation, table: TokenTable) -> list[str]:
    return [
        "end"
        if token == table.end_token
        # Matplotlib would take a dollar sign for the start of a formula.
        else ("▁" if table.starts_word[token] else "")
        + _text_of([token], table).replace("$", r"\$")
        for token in found.tokens
    ]


def study(
    replay: Replay,
    settings: Sequence[ReplaySetting],
    segment_ms: int,
    picture_count: int,
    output: Path,
) -> tuple[list[dict[str, Cell]], list[dict[str, Cell]]]:
    """Write the oracle's log, the pictures and the replays; return the rows of both tables."""
    name = f"oracle@segment={segment_ms}"
    folder = replay.open_folder(output / name, {"oracle": segment_ms})
    shares = asyncio.run(_study_inputs(replay, segment_ms, picture_count, folder))
    folder.complete(default_unit(replay.language))
    if settings:
        replay.run(settings, output)
    oracle = read_point(folder.path, ScoringOptions())
    points = [read_point(output / setting.name, ScoringOptions()) for setting in settings]
    # The oracle is not a policy that computes, so it has no computation-aware latency.
    rows = [_describe(oracle, oracle) | {"LAAL simuleval": None}]
    return _share_rows(shares), rows + [_describe(point, oracle) for point in points]


async def _study_inputs(
    replay: Replay, segment_ms: int, picture_count: int, folder: EvaluationFolder
) -> list[torch.Tensor]:
    finished = folder.finished()
    shares: list[torch.Tensor] = []
    with closing(RunProgress("oracle", len(replay.inputs), 0)) as progress:
        for recorded in replay.inputs:
            source = replay.open(recorded)
            hypotheses = await find_partial_hypotheses(source, segment_ms, MOST_TOKENS)
            found = [(end_ms, one) for end_ms, one in hypotheses if one is not None]
            share = mean_shares([one.weights for _, one in found])
            if share is not None:
                shares.append(share)
                # The longest beginning that was translated has the most states.
                end_ms, last = found[-1]
                if recorded.index < picture_count:
                    title = f"input {recorded.index}, the first {end_ms / 1000:g} s"
                    path = folder.path.parent / f"attention_{recorded.index:04d}.png"
                    layers = range(1, last.weights.shape[0] + 1)
                    draw_attention(last, layers, replay.served.tokens, title, path)
            if recorded.index not in finished:
                folder.append(await translate_by_oracle(replay, source, segment_ms))
            progress.count(recorded.duration_ms)
    return shares


def _share_rows(shares: Sequence[torch.Tensor]) -> list[dict[str, Cell]]:
    means = torch.stack(list(shares)).mean(0).tolist() if shares else []
    return [
        {"layer": layer, **dict(zip(SHARES, values, strict=True))}
        for layer, values in enumerate(means, start=1)
    ]


def _describe(point: CurvePoint, oracle: CurvePoint) -> dict[str, Cell]:
    laal_ms, earliest_ms = point.latency("LAAL", "ideal"), oracle.latency("LAAL", "ideal")
    return {
        "setting": point.name,
        "BLEU": point.bleu,
        "AL": point.latency("AL", "ideal"),
        "LAAL": laal_ms,
        "LAAL simuleval": point.latency("LAAL", "simuleval"),
        "BLEU below oracle": None
        if point.bleu is None or oracle.bleu is None
        else oracle.bleu - point.bleu,
        "LAAL above oracle": None
        if laal_ms is None or earliest_ms is None
        else laal_ms - earliest_ms,
        "length ratio": point.report.score.length_ratio,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.studies.attention")
    add_recording_arguments(parser)
    parser.add_argument(
        "--policy",
        metavar="SETTING",
        action="append",
        default=[],
        help="a setting of `earvoice replay`; the table shows its headroom; repeatable",
    )
    parser.add_argument(
        "--segment",
        metavar="MS",
        type=int,
        default=800,
        help="segment of the oracle and the pictures (%(default)s)",
    )
    parser.add_argument(
        "--pictures", metavar="N", type=int, default=1, help="draw the first N inputs (%(default)s)"
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="where tables and pictures go; run again to resume",
    )
    options = parser.parse_args(arguments)
    check_segment_ms(options.segment)
    settings = read_settings(options.policy) if options.policy else []
    with computing():
        replay = Replay(options.recording, options.model, options.to, options.limit)
        shares, rows = study(replay, settings, options.segment, options.pictures, options.output)
    (options.output / "attention_share.tsv").write_text(as_tsv(shares), encoding="utf8")
    (options.output / "study.tsv").write_text(as_tsv(rows), encoding="utf8")
    sys.stdout.write(f"{as_text(shares)}\n\n{as_text(rows)}\n")


if __name__ == "__main__":
    run_script(main)
