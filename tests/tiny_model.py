"""Networks that compute in milliseconds, vocabularies of a few sentences, and checkpoints."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import BOS, EOS, SPECIALS, Vocabulary

SOURCE_TEXT = ("the small cat sees the old house", "today the teacher brings the old book")
WIDTH = 32
LAYERS = 3
SPREADS = {"embed_tokens": 0.3, "self_attn": 1.2, "encoder_attn": 2.0}
"""Of the lively checkpoint's decoder."""
TARGET_TEXT = ("die kleine Katze sieht das alte Haus", "heute bringt der Lehrer das alte Buch")
LIVELY_TEXT = (TARGET_TEXT[0], f"{TARGET_TEXT[1]} für Zoë")


def train_sentencepiece(
    sentences: tuple[str, ...], size: int = 48, *, byte_fallback: bool = False
) -> bytes:
    """A SentencePiece model of a few sentences, with our specials and perhaps every byte."""
    bos, pad, eos, unk = SPECIALS
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=304 if byte_fallback else size,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        bos_piece=bos,
        pad_piece=pad,
        eos_piece=eos,
        unk_piece=unk,
        minloglevel=2,
    )
    return model.getvalue()


def tiny_config(source_model: bytes, target_model: bytes) -> ModelConfig:
    """Three Conformer and two decoder layers, 32 wide, for these vocabularies."""
    return ModelConfig(
        name="tiny",
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("de"),),
        source_pieces=len(Vocabulary(source_model)),
        target_pieces=len(Vocabulary(target_model)),
        encoder=EncoderConfig(
            d_model=WIDTH,
            heads=4,
            layers=3,
            ctc_layer=2,
            depthwise_kernel=5,
            subsampler=SubsamplerConfig(layers=3, kernel_frames=5, channels=48),
        ),
        decoder=DecoderConfig(layers=2, heads=2, ffn_width=64, tied_embeddings=True),
        policy_defaults=PolicyDefaults(attention_layer=1),
    )


def random_network(config: ModelConfig, seed: int = 0) -> SpeechTranslationModel:
    """A network in evaluation mode whose every parameter and statistic is random."""
    torch.manual_seed(seed)
    network = SpeechTranslationModel(config).eval()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2.0)
            elif name.endswith((".bias", "running_mean")):
                tensor.normal_(std=0.2)
    return network


def write_tiny_checkpoint(
    directory: Path, *, translating: bool = False, positions: int | None = None
) -> None:
    """Write a checkpoint whose greedy text varies and sometimes ends.

    German is spoken without a tag, French with one.

    Args:
        translating: all text is a translation of what other layers write, behind a token that no
            text has.
        positions: number of learned ones; None for sinusoids.
    """
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = tiny_config(pieces, pieces)
    config = replace(
        config,
        target_languages=(TargetLanguage("de"), TargetLanguage("fr", "<lang:fr>")),
        target_pieces=config.target_pieces + 1,
        decoder=DecoderConfig(layers=LAYERS, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults(attention_layer=2),
    )
    if translating:
        shape = replace(
            config.decoder, own_layers=(BOS,), pivot_layers=1, tied_embeddings=True, shortlist=True
        )
        config = replace(config, decoder=shape)
    if positions is not None:
        shape = replace(config.decoder, positions="learned", max_tokens=positions)
        config = replace(config, decoder=shape)
    write_lively_checkpoint(directory, config, pieces)


def write_lively_checkpoint(directory: Path, config: ModelConfig, pieces: bytes) -> None:
    """Write a network whose weights are so wide that each token depends on all that came before."""
    torch.manual_seed(5)
    network = SpeechTranslationModel(config)
    with torch.no_grad():
        for name, parameter in network.decoder.named_parameters():
            if parameter.ndim > 1:
                spread = next((s for part, s in SPREADS.items() if part in name), 1.0)
                parameter.normal_(std=spread / WIDTH**0.5)
        if config.decoder.shortlist:
            network.transformer_decoder.shortlist[1, EOS + 1 :: 3] = 0
        # Sentences shall end, but not at once.
        network.decoder.output_projection.weight[EOS] *= 1.2
    save_network(directory, network, pieces, pieces)


def save_network(
    directory: Path, network: SpeechTranslationModel, source: bytes, target: bytes, **options: Any
) -> None:
    """Write a network's checkpoint; ``source`` and ``target`` are SentencePiece models."""
    save_checkpoint(
        directory,
        network.config,
        network.state_dict(),
        source_model=source,
        target_model=target,
        **{"normalisation": FeatureNormalisation.identity(), **options},
    )
