"""A trained network made deeper and given more languages, without forgetting what it can.

New layers pass their input on unchanged until they are trained (function-preserving growth,
Chen 2016, Net2Net): the last projection of each of their branches is zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from earvoice.models.assembly import EMBEDDING_WEIGHT, is_derived, language_tags
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from earvoice.models.config import ModelConfig
    from earvoice.training.start import TrainingStart

    Tensors = dict[str, torch.Tensor]

_ENCODER_BRANCH_ENDS = (
    "first_feed_forward.second_linear",
    "attention.out_proj",
    "conv_module.second_pointwise_conv1d",
    "second_feed_forward.second_linear",
)
_DECODER_BRANCH_ENDS = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
_NEW_PIECE_SPREAD = 0.3


def grow(start: TrainingStart, config: ModelConfig, target_model: bytes) -> TrainingStart:
    """Return `start` in a larger shape, computing the same as before for the pieces it had.

    Target pieces of the same spelling keep their embedding; new ones begin near the mean of all.
    New weights are drawn with torch's generator.

    Args:
        start: with weights.
        config: of the grown network: at least as many layers below and above the CTC head and in
            the decoder, at most twice as many, everything else but the target side equal.
        target_model: SentencePiece model of the grown network's translation.

    Raises:
        ValueError: `start` has no weights, or the shapes do not allow growth.
    """
    trained = start.trained_weights()
    _check(start.config, config)
    tensors = dict(SpeechTranslationModel(config).state_dict())
    tensors.update(_kept(trained))
    _grow_encoder(start, config, tensors)
    _grow_decoder(start, config, tensors)
    pieces = Vocabulary(target_model, language_tags(config)).pieces
    old_pieces = start.target().vocabulary.pieces
    tensors[EMBEDDING_WEIGHT] = grow_embedding(
        trained[EMBEDDING_WEIGHT].float(), old_pieces, pieces
    )
    weights = {n: tensor for n, tensor in tensors.items() if not is_derived(n, config)}
    return replace(start, config=config, target_model=target_model, weights=weights)


def spread(old: int, new: int) -> list[int | None]:
    """Say for each of `new` layers which of `old` it was; None for one to be inserted.

    Inserted layers stand evenly between the old ones, each behind one of them.

    Raises:
        ValueError: `new` is not between `old` and twice as many.
    """
    if not old <= new <= 2 * old:
        message = f"{old} layers cannot grow to {new}; allowed: {old} to {2 * old}"
        raise ValueError(message)
    behind = {-(-(index + 1) * old // (new - old)) - 1 for index in range(new - old)}
    order: list[int | None] = []
    for index in range(old):
        order += [index, None] if index in behind else [index]
    return order


def grow_embedding(
    old: torch.Tensor, old_pieces: tuple[str, ...], pieces: tuple[str, ...]
) -> torch.Tensor:
    """Return rows for `pieces`, [V, d] float32, from those of `old_pieces`, [V_old, d]."""
    places = {piece: index for index, piece in enumerate(old_pieces)}
    rows = old.mean(0) + _NEW_PIECE_SPREAD * old.std() * torch.randn(len(pieces), old.shape[1])
    for index, piece in enumerate(pieces):
        if piece in places:
            rows[index] = old[places[piece]]
    return rows


def _check(old: ModelConfig, new: ModelConfig) -> None:
    def fixed(config: ModelConfig) -> tuple[object, ...]:
        encoder = replace(config.papers_encoder, layers=1, ctc_layer=1)
        return encoder, replace(config.decoder, layers=1), config.source_pieces

    if fixed(old) != fixed(new) or old.encoder.architecture != "conformer":
        message = "only the layer counts and the target side of a Conformer model can grow"
        raise ValueError(message)


def _kept(weights: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the tensors outside the layers."""
    layers = ("encoder.layers.", "decoder.layers.", EMBEDDING_WEIGHT)
    return {n: tensor.float() for n, tensor in weights.items() if not n.startswith(layers)}


def _grow_encoder(start: TrainingStart, config: ModelConfig, tensors: Tensors) -> None:
    old, new = start.config.papers_encoder, config.papers_encoder
    below = spread(old.ctc_layer, new.ctc_layer)
    above = spread(old.layers - old.ctc_layer, new.layers - new.ctc_layer)
    order = below + [None if i is None else i + old.ctc_layer for i in above]
    _place(order, "encoder.layers", start, tensors)
    for index, origin in enumerate(order):
        if origin is not None:
            continue
        _zero(tensors, f"encoder.layers.{index}", _ENCODER_BRANCH_ENDS)
        # The last LayerNorm moves up: a normalised input passes the new layer's own unchanged.
        for name, neutral in (("weight", 1.0), ("bias", 0.0)):
            before = tensors[f"encoder.layers.{index - 1}.layernorm.{name}"]
            tensors[f"encoder.layers.{index}.layernorm.{name}"] = before.clone()
            before.fill_(neutral)


def _grow_decoder(start: TrainingStart, config: ModelConfig, tensors: Tensors) -> None:
    order = spread(start.config.decoder.layers, config.decoder.layers)
    _place(order, "decoder.layers", start, tensors)
    for index, origin in enumerate(order):
        if origin is None:
            _zero(tensors, f"decoder.layers.{index}", _DECODER_BRANCH_ENDS)


def _place(order: list[int | None], layers: str, start: TrainingStart, tensors: Tensors) -> None:
    """Copy each old layer to its new place."""
    for index, origin in enumerate(order):
        if origin is None or start.weights is None:
            continue
        prefix = f"{layers}.{origin}."
        for name, tensor in start.weights.items():
            if name.startswith(prefix):
                tensors[f"{layers}.{index}.{name.removeprefix(prefix)}"] = tensor.float().clone()


def _zero(tensors: Tensors, layer: str, branch_ends: tuple[str, ...]) -> None:
    for name in branch_ends:
        for kind in ("weight", "bias"):
            tensors[f"{layer}.{name}.{kind}"] = torch.zeros_like(tensors[f"{layer}.{name}.{kind}"])
