"""Sequence-level distillation (Kim 2016): learn from the translations of a text model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from earvoice.models.wrapped.loading import FROM_THIS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BATCH_TEXTS = 32
BEAM = 5
MOST_PIECES = 128


@torch.inference_mode()
def translations(
    folder: Path, texts: Sequence[str], languages: Sequence[str] | None = None
) -> list[str]:
    """Translate texts with any `transformers` text model, in the order given.

    Args:
        folder: a checkpoint; nothing is downloaded, and no code in it is run.
        languages: source and target in the tokenizer's own codes, if it needs them.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **FROM_THIS_FOLDER)
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(
        folder, use_safetensors=True, **FROM_THIS_FOLDER
    ).eval()
    forced = {}
    if languages:
        tokenizer.src_lang, target = languages
        forced["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(target)
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    found = [""] * len(texts)
    for begin in range(0, len(order), BATCH_TEXTS):
        part = order[begin : begin + BATCH_TEXTS]
        given = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
        written = model.generate(**given, num_beams=BEAM, max_new_tokens=MOST_PIECES, **forced)
        told = tokenizer.batch_decode(written, skip_special_tokens=True)
        for index, text in zip(part, told, strict=True):
            found[index] = text
    return found
