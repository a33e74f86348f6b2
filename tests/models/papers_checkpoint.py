"""Checkpoints as the papers' code writes them."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from earvoice.models.config import ModelConfig
from earvoice.models.vocabulary import SPECIALS, Vocabulary
from tests.tiny_model import random_network

CONFIGURATION = """
bpe_tokenizer: {bpe: sentencepiece, sentencepiece_model: /elsewhere/tgt.model}
bpe_tokenizer_src: {bpe: sentencepiece, sentencepiece_model: src.model}
global_cmvn: {stats_npz_path: gcmvn.npz}
transforms: {'*': [global_cmvn]}
vocab_filename: tgt.txt
vocab_filename_src: src.txt
"""


def papers_options(config: ModelConfig) -> argparse.Namespace:
    """The options that the papers' code keeps, those of the Conformer included, as it does."""
    return argparse.Namespace(
        encoder_embed_dim=config.encoder.d_model,
        encoder_attention_heads=config.encoder.heads,
        encoder_layers=config.encoder.layers,
        ctc_encoder_layer=config.encoder.ctc_layer,
        ctc_compress_strategy=config.encoder.compression,
        conformer_conv_kernel_size=config.encoder.depthwise_kernel,
        conv_kernel_sizes="5,5,5",
        conv_channels=config.encoder.subsampler.channels,
        decoder_layers=config.decoder.layers,
        decoder_attention_heads=config.decoder.heads,
        decoder_ffn_embed_dim=config.decoder.ffn_width,
        share_decoder_input_output_embed=config.decoder.tied_embeddings,
        no_scale_embedding=False,
    )


def papers_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    theirs = {"decoder.version": torch.zeros(1)}
    for name, tensor in state.items():
        renamed = name.replace(".attention.", ".attention.attention.")
        renamed = renamed.replace("encoder.layers.", "encoder.conformer_layers.")
        renamed = renamed.replace(".attention_norm.", ".attention.layer_norm.")
        pointwise = "_pointwise_conv1d.weight" in name
        theirs[renamed] = tensor[..., None] if pointwise else tensor
    return theirs


def papers_transformer_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same of a network with a Transformer encoder."""
    theirs = {"encoder.embed_positions._float_tensor": torch.zeros(1)}
    for name, tensor in state.items():
        theirs[name.replace("encoder.layers.", "encoder.transformer_layers.")] = tensor
    return theirs


def write_vocabulary(folder: Path, name: str, model: bytes, extra: tuple[str, ...] = ()) -> None:
    (folder / f"{name}.model").write_bytes(model)
    pieces = (*Vocabulary(model).pieces[len(SPECIALS) :], *extra)
    (folder / f"{name}.txt").write_text("".join(f"{piece} 1\n" for piece in pieces))


def write_papers_checkpoint(
    folder: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> Path:
    """A random Conformer, written as the papers' code writes its older checkpoints."""
    content = {
        "args": papers_options(config),
        "model": papers_names(random_network(config).state_dict()),
        "extra_state": {"epoch": 1},
    }
    torch.save(content, folder / "checkpoint.pt")
    write_vocabulary(folder, "src", source_model)
    write_vocabulary(folder, "tgt", target_model)
    np.savez(folder / "gcmvn.npz", mean=np.full(80, 9.0), std=np.full(80, 3.0))
    (folder / "config_simul.yaml").write_text(CONFIGURATION)
    return folder / "checkpoint.pt"
