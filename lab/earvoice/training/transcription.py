"""Greedy readings of a network: the CTC transcript and the translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.models.vocabulary import EOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.models.encoder import EncoderOutput
    from earvoice.models.translation import SpeechTranslationModel

_TOKENS_PER_STATE = 1.5
_SPARE_TOKENS = 20


def ctc_tokens(encoded: EncoderOutput, blank: int) -> list[int]:
    """Return the transcript's source ids: repeated labels once, blanks removed."""
    labels = torch.unique_consecutive(encoded.frame_labels).tolist()
    return [label for label in labels if label != blank]


def greedy_translations(
    network: SpeechTranslationModel, encoded: Sequence[EncoderOutput]
) -> list[list[int]]:
    """Return the most probable token after token for several utterances side by side.

    A hypothesis ends at the end token, or at a length that no translation reaches.
    """
    caches = [network.decoder.open_cache(output.states) for output in encoded]
    limits = [_SPARE_TOKENS + _TOKENS_PER_STATE * len(output.states) for output in encoded]
    hypotheses: list[list[int]] = [[] for _ in encoded]
    open_ones = list(range(len(encoded)))
    while open_ones:
        last = [hypotheses[i][-1] if hypotheses[i] else EOS for i in open_ones]
        logits, _ = network.decoder.step(last, [caches[i] for i in open_ones], [1] * len(open_ones))
        still_open = []
        for index, token in zip(open_ones, logits.argmax(-1).tolist(), strict=True):
            if token != EOS:
                hypotheses[index].append(token)
                if len(hypotheses[index]) < limits[index]:
                    still_open.append(index)
        open_ones = still_open
    return hypotheses
