"""Loading a checkpoint directory of `transformers` for the services."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoFeatureExtractor, AutoTokenizer
from transformers.utils import logging

from earvoice.api.v1 import types_pb2
from earvoice.models.assembly import check_finite, check_memory, loading_bytes
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.precision import ELEMENT_TYPES
from earvoice.models.vocabulary import BOS, EOS, PAD
from earvoice.models.wrapped.decoder import WrappedDecoder, piece_table
from earvoice.models.wrapped.directory import digest, read_config, weight_size
from earvoice.models.wrapped.families import (
    WRAPPED_FAMILIES,
    Prompt,
    WrappedEncoder,
    decoder_config,
    prompt_of,
)
from earvoice.runtime.machine import available_memory_bytes

FROM_THIS_FOLDER: Mapping[str, bool] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is fetched, and no code beside a checkpoint is run."""
DTYPES = (torch.float32, torch.bfloat16)
DEFAULT_SEGMENT_MS = 800


@dataclasses.dataclass(frozen=True)
class WrappedModel:
    encoder: WrappedEncoder
    decoder: WrappedDecoder
    order: tuple[int, ...]
    """The tokenizer's id for each of our token ids."""
    texts: tuple[bytes, ...]
    """UTF-8 by our id, without a word's leading space; empty for what writes nothing."""
    starts_word: tuple[bool, ...]
    language_tokens: dict[str, tuple[int, ...]]
    """BCP-47 tag of each target to the tokens forced after the start, in our ids."""
    max_tokens: int
    """Most tokens of one hypothesis, prompt included."""
    description: types_pb2.ModelDescription


def load_wrapped(
    path: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    source_language: str,
    target_language: str,
    compression: str = "checkpoint",
    name: str = "",
) -> WrappedModel:
    """Load a checkpoint directory; nothing is fetched, nothing unpickled, no code of it run.

    Args:
        compression: "checkpoint" or "none": there are no labels to compress by.
    """
    if dtype not in DTYPES:
        message = f"dtype is {dtype}; allowed for this family: {', '.join(map(str, DTYPES))}"
        raise ModelError(message)
    if compression not in ("checkpoint", "none"):
        raise ModelError(f"compression is {compression!r}; allowed without a CTC head: 'none'")
    _check_fits(path)
    _log_as_we_do()
    try:
        return _assembled(path, dtype, device, (source_language, target_language), name)
    except ModelError:
        raise
    except Exception as error:
        # Settings of another type than expected make `transformers` raise almost any exception.
        message = f"checkpoint {path.name} is not usable ({type(error).__name__}: {error})"
        raise CheckpointError(message) from error


def _assembled(
    path: Path, dtype: torch.dtype, device: torch.device, languages: tuple[str, str], name: str
) -> WrappedModel:
    model = _read_model(path).to(device=device, dtype=dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(path, **FROM_THIS_FOLDER)
    extractor = AutoFeatureExtractor.from_pretrained(path, **FROM_THIS_FOLDER)
    prompt = prompt_of(model, tokenizer, *languages)
    text = decoder_config(model)
    order, texts, starts_word = piece_table(
        tokenizer, text.vocab_size, prompt.end, _never_chosen(prompt)
    )
    if not any(texts):
        # Without the file of its vocabulary, `transformers` makes an empty tokenizer.
        raise CheckpointError(f"checkpoint {path.name}: its tokenizer has no pieces to write")
    encoder = WrappedEncoder(model, extractor)
    description = _describe(path, model, prompt, dtype, languages[0], name)
    description.longest_utterance_ms = (encoder.maximum_samples or 0) * 1000 // SAMPLE_RATE_HZ
    return WrappedModel(
        encoder=encoder,
        decoder=WrappedDecoder(model, order, prompt),
        order=order,
        texts=texts,
        starts_word=starts_word,
        language_tokens={
            tag: tuple(map(order.index, tokens)) for tag, tokens in prompt.language_tokens.items()
        },
        max_tokens=getattr(text, "max_target_positions", None) or text.max_position_embeddings,
        description=description,
    )


def _log_as_we_do() -> None:
    """Services write lines of JSON: no progress bars, and records go where all others go."""
    logging.disable_progress_bar()
    logging.disable_default_handler()
    logging.enable_propagation()


def _check_fits(path: Path) -> None:
    kind = read_config(path).get("model_type")
    if not isinstance(kind, str) or kind not in WRAPPED_FAMILIES:
        message = f"{path.name} model_type is {kind!r}; allowed: {', '.join(WRAPPED_FAMILIES)}"
        raise ModelError(message)
    check_memory(path.name, loading_bytes(*weight_size(path)), available_memory_bytes())


def _read_model(path: Path) -> Any:
    family = WRAPPED_FAMILIES[read_config(path)["model_type"]]
    model, told = family.network.from_pretrained(
        path,
        **FROM_THIS_FOLDER,
        use_safetensors=True,
        # Other ways of computing attention do not return its weights.
        attn_implementation="eager",
        dtype=torch.float32,
        output_loading_info=True,
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if told[kind]:
            names = sorted(map(str, told[kind]))
            message = f"checkpoint {path.name}: {kind.replace('_', ' ')}: {names[0]} ({len(names)})"
            raise CheckpointError(message)
    for name, tensor in model.state_dict().items():
        check_finite(name, tensor)
    return model


def _never_chosen(prompt: Prompt) -> tuple[int, int]:
    """Two ids that are never generated: the usual ones, or two tokens of Whisper's prompt."""
    if prompt.end == EOS:
        return BOS, PAD
    language, *_ = next(iter(prompt.language_tokens.values()))
    return prompt.start, language


def _describe(
    path: Path, model: Any, prompt: Prompt, dtype: torch.dtype, source_language: str, name: str
) -> types_pb2.ModelDescription:
    text = decoder_config(model)
    layers = text.decoder_layers
    return types_pb2.ModelDescription(
        name=name or path.resolve().name,
        hash=digest(path),
        version="1",
        source_language_code=source_language,
        target_language_codes=sorted(prompt.language_tokens),
        decoder_layer_count=layers,
        decoder_head_count=text.decoder_attention_heads,
        precision=ELEMENT_TYPES[dtype],
        parameter_count=sum(parameter.numel() for parameter in model.parameters()),
        # Its attention is not calibrated: take the policy that does not use it.
        default_policy="local_agreement",
        default_alpha=0.2,
        default_lambda_states=2,
        default_attention_layer=max(1, round(layers * 2 / 3)),
        default_frames=4,
        default_segment_ms=DEFAULT_SEGMENT_MS,
        confidence_map=types_pb2.ConfidenceMap(unsure_scale=1, sure_scale=1),
        lacks_ctc=True,
    )
