"""A heat map of cross-attention, with and without the last encoder state (Papi 2023, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from earvoice.decoder.model import TokenTable
from earvoice.evaluation.replay.continuation import Continuation

_ROW_INCHES = 0.22
_PANEL_WIDTH_INCHES = 4.0
_MARGIN_INCHES = 1.2


def draw_attention(
    found: Continuation, layers: Sequence[int], table: TokenTable, title: str, path: Path
) -> None:
    """Write a picture: a column of panels for each layer, the mean over its heads.

    The upper panels show the rows as they are; the lower ones have lost their last state and are
    rescaled to length 1 (EDAtt's ``l2``).

    Args:
        found: a hypothesis over 2 states or more.
        layers: decoder layers, from 1.
        table: what each token writes.
        title: above all.
        path: its ending says the format (SVG, PNG, PDF).
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
    """Return the tokens; a word's first one is marked as SentencePiece does."""
    return [
        "end"
        if token == table.end_token
        # A dollar sign would begin a formula.
        else ("▁" if table.starts_word[token] else "")
        + table.texts[token].decode("utf8", "replace").replace("$", r"\$")
        for token in found.tokens
    ]
