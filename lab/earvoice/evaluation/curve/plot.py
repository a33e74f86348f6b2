"""The picture of curves: quality over latency, on the ideal clock and on a real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earvoice.evaluation.clock import Clock
from earvoice.evaluation.curve.line import CurveLine
from earvoice.evaluation.curve.resampling import Resampler
from earvoice.evaluation.resampling import CONFIDENCE, band

_PANEL_INCHES = (6.0, 4.5)
_MS = 1000


def draw_curves(
    lines: Sequence[CurveLine],
    metric: str,
    clocks: Sequence[Clock],
    resampler: Resampler,
    path: Path,
) -> None:
    """Write a picture: a panel for each clock, a line for each policy, bands of BLEU.

    Args:
        lines: what to draw; points without BLEU or latency are left out.
        metric: of latency.
        clocks: a panel each.
        resampler: of the test set, for the bands.
        path: its ending says the format (SVG, PNG, PDF).
    """
    width, height = _PANEL_INCHES
    # Element names of an SVG are random otherwise: the same curves give the same file.
    with mpl.rc_context({"svg.hashsalt": "earvoice"}):
        figure = Figure(figsize=(width * len(clocks), height), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(clocks), squeeze=False, sharey=True)[0])
        for panel, clock in zip(panels, clocks, strict=True):
            for line in lines:
                _draw_line(panel, line, metric, clock, resampler)
            panel.set_xlabel(f"{metric}, s ({clock} clock)")
            panel.grid(visible=True, alpha=0.3)
        panels[0].set_ylabel(f"BLEU, with {CONFIDENCE:.0%} bands")
        panels[0].legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_line(
    panel: Axes, line: CurveLine, metric: str, clock: Clock, resampler: Resampler
) -> None:
    drawn: list[tuple[float, float, float, float]] = []
    for point in line.points:
        latency_ms = point.latency(metric, clock)
        borders = band(resampler.bleu(point)[1:])
        if latency_ms is not None and point.bleu is not None and borders is not None:
            drawn.append((latency_ms / _MS, point.bleu, *borders))
    if not drawn:
        return
    latencies, scores, lows, highs = zip(*sorted(drawn), strict=True)
    (curve,) = panel.plot(latencies, scores, marker="o", label=line.name)
    panel.fill_between(latencies, lows, highs, color=curve.get_color(), alpha=0.15)
