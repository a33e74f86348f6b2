"""A checkpoint with random weights whose greedy text varies and sometimes ends."""

import io
from pathlib import Path

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
from earvoice.models.vocabulary import EOS, SPECIALS

WIDTH = 32
LAYERS = 3
SPREADS = {"embed_tokens": 0.3, "self_attn": 1.2, "encoder_attn": 2.0}
TEXT = ("die kleine Katze sieht das alte Haus", "heute bringt der Lehrer das alte Buch für Zoë")


def write_tiny_checkpoint(directory: Path, seed: int = 5) -> None:
    """Write a checkpoint directory: German without a tag, French with one."""
    pieces = _sentencepiece_model()
    count = sentencepiece.SentencePieceProcessor(model_proto=pieces).GetPieceSize()
    config = ModelConfig(
        name="tiny",
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("de"), TargetLanguage("fr", "<lang:fr>")),
        source_pieces=count,
        target_pieces=count + 1,
        encoder=EncoderConfig(
            d_model=WIDTH,
            heads=2,
            layers=1,
            ctc_layer=1,
            depthwise_kernel=3,
            subsampler=SubsamplerConfig(channels=16),
        ),
        decoder=DecoderConfig(layers=LAYERS, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults(attention_layer=2),
    )
    save_checkpoint(
        directory,
        config,
        _lively_network(config, seed).state_dict(),
        normalisation=FeatureNormalisation.identity(),
        source_model=pieces,
        target_model=pieces,
    )


def _lively_network(config: ModelConfig, seed: int) -> SpeechTranslationModel:
    """Weights wide enough that the next token depends on all that came before."""
    torch.manual_seed(seed)
    network = SpeechTranslationModel(config)
    with torch.no_grad():
        for name, parameter in network.decoder.named_parameters():
            if parameter.ndim > 1:
                spread = next((s for part, s in SPREADS.items() if part in name), 1.0)
                parameter.normal_(std=spread / WIDTH**0.5)
        # Sentences shall end, but not at once.
        network.decoder.output_projection.weight[EOS] *= 1.2
    return network


def _sentencepiece_model() -> bytes:
    bos, pad, eos, unk = SPECIALS
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        model_type="bpe",
        vocab_size=64,
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
