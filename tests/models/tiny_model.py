"""A network that computes in milliseconds, and vocabularies of a few sentences."""

import io

import sentencepiece
import torch

from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import SPECIALS, Vocabulary

SOURCE_TEXT = ("the small cat sees the old house", "today the teacher brings the old book")
TARGET_TEXT = ("die kleine Katze sieht das alte Haus", "heute bringt der Lehrer das alte Buch")


def train_sentencepiece(sentences: tuple[str, ...], *, byte_fallback: bool = False) -> bytes:
    """A SentencePiece model of a few sentences, with our specials and perhaps every byte."""
    bos, pad, eos, unk = SPECIALS
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=304 if byte_fallback else 48,
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
            d_model=32,
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
