"""The figure: quality over latency, ideal and computation-aware, a column a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from earvoice.claims import plan
from earvoice.claims.experiment import Experiment
from earvoice.claims.family import DRAWN, FAMILIES
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import estimate

# Readable on white and on black: the background is left open, the ink is in the middle.
_INK = "#808080"
_COLOURS = (
    "#d95f5f", "#e08a1e", "#3d85c6", "#8e63c7", "#a67c52", "#2e9e62", "#77a832", "#c4569a",
)  # fmt: skip
_CLOCKS: tuple[Clock, ...] = ("ideal", "true")
_MARKERS = "osD^vP*X"
_COLUMN_INCHES = 5.2
_ROW_INCHES = 4.0


def draw_curves(experiments: Sequence[Experiment], path: Path) -> None:
    """Write the figure as SVG; the same results give the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "earvoice", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(
            figsize=(_COLUMN_INCHES * len(experiments), _ROW_INCHES * len(_CLOCKS)),
            layout="constrained",
        )
        panels = figure.subplots(len(_CLOCKS), len(experiments), squeeze=False)
        for column, experiment in enumerate(experiments):
            for row, clock in enumerate(_CLOCKS):
                _draw_panel(panels[row, column], experiment, clock)
        panels[0, 0].legend(fontsize=7, labelcolor=_INK, framealpha=0, loc="lower right")
        figure.savefig(path, transparent=True, format="svg", metadata={"Date": None})


def _draw_panel(panel: Any, experiment: Experiment, clock: Clock) -> None:
    for name, colour, marker in zip(DRAWN, _COLOURS, _MARKERS, strict=True):
        known = [setting for setting in FAMILIES[name] if experiment.has(setting)]
        if known:
            _draw_curve(panel, experiment, known, clock, (name, colour, marker))
    if experiment.has(plan.offline()):
        bleu = float(experiment.bleu(plan.offline())[0])
        panel.axhline(bleu, color=_INK, linewidth=0.8, linestyle="--", label="offline, greedy")
    axis = "LAAL, ideal" if clock == "ideal" else f"LAAL, clock {clock}"
    panel.set_title(experiment.label, color=_INK)
    panel.set_xlabel(f"{axis} (s)", color=_INK)
    panel.set_ylabel("BLEU", color=_INK)
    panel.tick_params(colors=_INK)
    panel.grid(visible=True, color=_INK, alpha=0.2, linewidth=0.5)
    for spine in panel.spines.values():
        spine.set_color(_INK)


def _draw_curve(
    panel: Any,
    experiment: Experiment,
    settings: Sequence[ReplaySetting],
    clock: Clock,
    style: tuple[str, str, str],
) -> None:
    name, colour, marker = style
    by_latency = sorted(settings, key=lambda it: experiment.latency_ms(it, "LAAL", clock)[0])
    latencies_s = [experiment.latency_ms(it, "LAAL", clock)[0] / 1000 for it in by_latency]
    bleus = [estimate(experiment.bleu(it)) for it in by_latency]
    panel.plot(
        latencies_s,
        [bleu.value for bleu in bleus],
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        label=name,
    )
    panel.fill_between(
        latencies_s,
        [bleu.low for bleu in bleus],
        [bleu.high for bleu in bleus],
        color=colour,
        alpha=0.08,
        linewidth=0,
    )
