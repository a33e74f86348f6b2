"""Greedy decoding of a padded batch, with cached keys and values: for teachers and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch.nn import functional

from earvoice.models.transformer import valid_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.models.transformer import TransformerDecoder, TransformerLayer


@torch.inference_mode()
def greedy(
    decoder: TransformerDecoder,
    memory: torch.Tensor,
    lengths: torch.Tensor,
    prompts: Sequence[Sequence[int]],
    end: int,
    most_tokens: int = 150,
    allowed: torch.Tensor | None = None,
) -> tuple[list[list[int]], list[list[float]]]:
    """Append the likeliest next token until the end.

    Args:
        decoder: ours, with or without learned positions.
        memory: [B, S, d] states.
        lengths: [B] int64 number of states of each.
        prompts: the first tokens of each hypothesis, equally many, of one language.
        end: the token that ends a hypothesis.
        most_tokens: longer hypotheses are cut, also at the decoder's own limit if that is lower.
        allowed: [V] bool, tokens that may be written.

    Returns:
        Tokens without prompt and end, and their log-probabilities, the end's last.
    """
    batch = memory.shape[0]
    stack = decoder.stack_of(prompts[0])
    layers = cast("list[TransformerLayer]", list(stack.layers))
    seen = valid_frames(lengths, memory.shape[1])[:, None, None]
    cross = [layer.project_memory(memory) for layer in layers]
    kept: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(layers)
    tokens = torch.tensor(prompts)
    position = 0
    texts: list[list[int]] = [[] for _ in range(batch)]
    scores: list[list[float]] = [[] for _ in range(batch)]
    over = torch.zeros(batch, dtype=torch.bool)
    for _ in range(min(most_tokens, decoder.config.decoder.max_new_tokens or most_tokens)):
        count = tokens.shape[1]
        rows = decoder.positions_up_to(position + count)[position:]
        hidden = decoder.embed(tokens, rows)
        for index, layer in enumerate(layers):
            query, key, value = layer.project_self(hidden)
            past = kept[index]
            if past is not None:
                key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
            kept[index] = key, value
            attended = functional.scaled_dot_product_attention(
                query, key, value, is_causal=past is None
            )
            hidden = layer.add_self(hidden, attended.transpose(1, 2).flatten(2))
            query = layer.project_cross(hidden)
            attended = functional.scaled_dot_product_attention(query, *cross[index], attn_mask=seen)
            hidden = layer.add_cross(hidden, attended.transpose(1, 2).flatten(2))
            hidden = layer.add_feed_forward(hidden)
        logits = decoder.logits(stack.layer_norm(hidden[:, -1])).float()
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        best, token = logits.log_softmax(-1).max(-1)
        for row in (~over).nonzero()[:, 0].tolist():
            scores[row].append(float(best[row]))
            if int(token[row]) != end:
                texts[row].append(int(token[row]))
        over |= token == end
        if over.all():
            break
        position += count
        tokens = token[:, None]
    return texts, scores
