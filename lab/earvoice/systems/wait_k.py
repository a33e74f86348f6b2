"""Wait-k as in the services: the source grows, and the policy decides how much to commit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.encoder.evidence import source_words
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.policies import WaitK
from earvoice.policies.base import Heard, Hypothesis, Token
from earvoice.systems.learning import continued

if TYPE_CHECKING:
    from earvoice.corpus.sound import Sound
    from earvoice.encoder.model import EncoderModel
    from earvoice.models.decoding import CachedDecoder
    from earvoice.models.vocabulary import Vocabulary

MOST_PIECES = 40

Step = tuple[Heard, torch.Tensor, Sequence[int]]
"""The source at one step: counts, the [S, d] states, and the label of each."""


@torch.inference_mode()
def write(
    decoder: CachedDecoder, target: Vocabulary, steps: Sequence[Step], k: int | None
) -> list[tuple[Token, int]]:
    """Each piece and the index of its step; the last step has the whole source, as k None needs."""
    policy = WaitK(k or 1, "adaptive", inclusive=True)
    written: list[tuple[Token, int]] = []
    last = len(steps) - 1
    for index in range(0 if k else last, len(steps)):
        heard, states, _ = steps[index]
        if index < last and not policy.wants_hypothesis(heard):
            continue
        kept = [token.token_id for token, _ in written]
        new = _continued(decoder, target, states, kept, policy if index < last else None)
        if index < last:
            new = new[: policy.decide(heard, Hypothesis(kept, new)).new_token_count]
        written += [(token, index) for token in new]
    return written


def _continued(
    decoder: CachedDecoder,
    target: Vocabulary,
    states: torch.Tensor,
    kept: Sequence[int],
    policy: WaitK | None,
) -> list[Token]:
    """The greedy continuation of the kept pieces, as far as the policy needs it."""
    new: list[Token] = []
    for piece in islice(continued(decoder, states, kept), MOST_PIECES - len(kept)):
        new.append(Token(piece, b"", target.starts_word(piece), ()))
        if policy is not None and policy.is_decided(new[-1], len(new) - 1):
            break
    return new


def hear(network: EncoderModel, sound: Sound, step_ms: float) -> list[Step]:
    """The source after each step of [n] float32 at 16 kHz, with CTC's labels.

    As in the encoder service, all audio so far is encoded again at every step.
    """
    features_of = network.open_features()
    step, parts = round(step_ms * SAMPLE_RATE_HZ / 1000), list[np.ndarray]()
    found: list[Step] = []
    for end in range(step, len(sound) + step, step):
        parts.append(features_of(sound[end - step : end]))
        encoding = network.encode(np.concatenate(parts))
        word_count, has_partial, _ = source_words(
            encoding.frame_labels, network.blank, network.label_kinds, final=end >= len(sound)
        )
        states = torch.frombuffer(bytearray(encoding.states), dtype=torch.float32)
        heard = Heard(
            min(end, len(sound)) * 1000 / SAMPLE_RATE_HZ,
            len(encoding.labels),
            word_count,
            has_partial,
        )
        found.append((heard, states.view(-1, network.dimension), encoding.labels))
    return found


def told(k: int | None) -> str:
    return f"k {k}" if k else "all of the source"
