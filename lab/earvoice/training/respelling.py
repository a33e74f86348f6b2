"""A network that reads in other pieces: its CTC head is replaced, everything else stays.

Short pieces are soon learned, but fast speech has more of them than CTC can tell apart in frames of
80 ms: a network reads well up to about three pieces in ten frames, and badly beyond five.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from earvoice.models.vocabulary import UNK, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from earvoice.training.start import TrainingStart

_HEAD = ("encoder.ctc_fc.weight", "encoder.ctc_fc.bias")


def respell(start: TrainingStart, source_model: bytes) -> TrainingStart:
    """Return `start` with other transcript pieces.

    A new piece begins where the old pieces of its spelling are on average, the blank as it was.

    Args:
        start: with weights.
        source_model: SentencePiece model of the transcript.

    Raises:
        ValueError: `start` has no weights.
    """
    weights = start.trained_weights()
    new = Vocabulary(source_model)
    ids = {piece: index for index, piece in enumerate(start.source().pieces)}
    origins = [_origins(piece, ids) for piece in new.pieces]
    for name in _HEAD:
        old = weights[name].float()
        weights[name] = torch.stack([*(old[spelling].mean(0) for spelling in origins), old[-1]])
    config = replace(start.config, source_pieces=len(new))
    return replace(start, config=config, source_model=source_model, weights=weights)


def _origins(piece: str, ids: Mapping[str, int]) -> list[int]:
    """Return the old ids that spell a piece, the longest first from the left."""
    origins: list[int] = []
    rest = piece
    while rest:
        head = next((rest[:end] for end in range(len(rest), 0, -1) if rest[:end] in ids), None)
        origins.append(UNK if head is None else ids[head])
        rest = rest[len(head) if head else 1 :]
    return origins
