"""A transducer's loss, how late its alignments write, and its search (Graves 2012; Liu 2021).

An alignment walks a lattice of N steps of the source and U pieces of the text: at step n, after u
pieces, it writes piece u + 1 and stays, or a blank and goes on to step n + 1. It ends with a blank
at the last step. Nodes count from 0.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.models.transformer import valid_frames
from earvoice.models.vocabulary import EOS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLANK = EOS
"""The end of what a step writes."""
_NEVER = -1e30
"""Log-probability of the impossible; with -inf, the gradient of a sum would be nan."""

Text = tuple[int, ...]


def align(
    logits: torch.Tensor, text: torch.Tensor, steps: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum over all alignments, forwards and backwards.

    Args:
        logits: [B, N, U + 1, V], for the next output at each node.
        text: [B, U] int64, padded with any value.
        steps: [B] int64 of each source, 1 to N.
        lengths: [B] int64 of each text, 0 to U.

    Returns:
        [B] float64: log-probability of each text, summed over its alignments; [B, N, U] float64:
        the posterior that piece u is written at step n, 0 where padded.
    """
    logits = logits.double()
    batch, count, nodes = logits.shape[:3]
    whole = logits.logsumexp(-1)
    valid = valid_frames(steps, count)
    # Beyond a source's last step, blanks cost nothing and lead nowhere.
    blank = (logits[..., BLANK] - whole).masked_fill(~valid[..., None], 0.0)
    wanted = text[:, None, :, None].expand(-1, count, -1, -1)
    piece = logits[:, :, :-1].gather(-1, wanted)[..., 0] - whole[:, :, :-1]
    piece = piece.masked_fill(~valid[..., None], _NEVER)
    passed = blank.cumsum(1)
    before = passed - blank
    forwards = [before[..., 0]]
    for u in range(nodes - 1):
        arrived = forwards[-1] + piece[..., u] - before[..., u + 1]
        forwards.append(before[..., u + 1] + arrived.logcumsumexp(1))
    backwards = [blank.new_zeros(batch, count)]
    for u in reversed(range(nodes)):
        ends = passed[:, -1:, u] - before[..., u]
        if u < nodes - 1:
            leaves = (before[..., u] + piece[..., u] + backwards[-1]).flip(1).logcumsumexp(1)
            ends = torch.where((lengths == u)[:, None], ends, leaves.flip(1) - before[..., u])
        backwards.append(ends)
    after = torch.stack(backwards[:0:-1], 2)
    total = after[:, 0, 0]
    share = torch.stack(forwards, 2)[..., :-1] + piece + after[..., 1:] - total[:, None, None]
    told = valid[..., None] & (torch.arange(nodes - 1, device=text.device) < lengths[:, None, None])
    return total, share.masked_fill(~told, -torch.inf).exp()


def expected_lag(written: torch.Tensor, steps: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The expected average lagging of each text, [B] float64 in steps.

    Piece u of U is due when u/U of the N steps are heard; earlier ones count as 0 (Liu 2021,
    section 3.3): E[1/U Σ max(0, n + 1 - u N/U)].

    Args:
        written: [B, N, U] posteriors; see `align`.
    """
    count, pieces = written.shape[1:]
    heard = torch.arange(1, count + 1, device=steps.device, dtype=torch.float64)
    place = torch.arange(pieces, device=steps.device, dtype=torch.float64)
    pieces_of = lengths.clamp(min=1)
    due = place * (steps / pieces_of)[:, None]
    late = (heard[:, None] - due[:, None]).clamp(min=0)
    return (written * late).sum((1, 2)) / pieces_of


def search(
    extend: Callable[[int, Sequence[Text]], np.ndarray],
    steps: int,
    *,
    within: int,
    between: int,
    most_pieces: int,
) -> list[tuple[Text, float]]:
    """Beam search, step by step through the source (Liu 2021, section 3.4).

    Alignments of one text are one hypothesis, their probabilities added.

    Args:
        extend: from a step and texts to [texts, V] log-probabilities of what follows them there.
        within: texts of one length that are kept within a step.
        between: texts that are kept from one step to the next; 1 if each step's output is
            committed.
        most_pieces: of a text.

    Returns:
        Texts and the logarithms of their probabilities, best first; `between` at most.
    """
    kept: dict[Text, float] = {(): 0.0}
    for step in range(steps):
        longest = max(map(len, kept))
        closed: dict[Text, float] = {}
        grown: dict[Text, float] = {}
        for length in range(min(map(len, kept)), most_pieces + 1):
            merged: defaultdict[Text, float] = defaultdict(lambda: -np.inf, grown)
            for text, total in kept.items():
                if len(text) == length:
                    merged[text] = float(np.logaddexp(merged[text], total))
            live = _best(merged, within)
            grown = {}
            if not live:
                continue
            # Longer texts only become less likely.
            enough = sorted(closed.values())[-between:]
            if length > longest and len(enough) == between and live[0][1] <= enough[0]:
                break
            for (text, total), row in zip(
                live, extend(step, [text for text, _ in live]), strict=True
            ):
                closed[text] = total + float(row[BLANK])
                for piece in np.argsort(-row)[: within + 1].tolist():
                    if piece != BLANK and length < most_pieces:
                        grown[*text, piece] = total + float(row[piece])
        kept = dict(_best(closed, between))
    return list(kept.items())


def _best(texts: dict[Text, float], count: int) -> list[tuple[Text, float]]:
    return sorted(texts.items(), key=lambda item: -item[1])[:count]
