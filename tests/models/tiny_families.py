"""Checkpoints of other families that compute in milliseconds: random weights, real tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    MBart50Tokenizer,
    MBartConfig,
    Speech2TextConfig,
    Speech2TextFeatureExtractor,
    Speech2TextForConditionalGeneration,
    Speech2TextTokenizer,
    SpeechEncoderDecoderConfig,
    SpeechEncoderDecoderModel,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from earvoice.models.vocabulary import Vocabulary, byte_alphabet

WIDTH = 16
SHAPE = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": WIDTH,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}


def speech_to_text(folder: Path, target_model: bytes) -> Path:
    """A Speech2Text that translates into one language."""
    torch.manual_seed(2)
    folder.mkdir()
    pieces = Vocabulary(target_model).pieces
    (folder / "sentencepiece.bpe.model").write_bytes(target_model)
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    tokenizer = Speech2TextTokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model")
    )
    tokenizer.save_pretrained(folder)
    Speech2TextFeatureExtractor().save_pretrained(folder)
    config = Speech2TextConfig(
        vocab_size=len(pieces),
        **SHAPE,
        conv_channels=16,
        max_target_positions=256,
        init_std=0.5,
    )
    Speech2TextForConditionalGeneration(config).save_pretrained(folder)
    return folder


def wav2vec_mbart(folder: Path, target_model: bytes) -> Path:
    """A wav2vec 2.0 encoder with an mBART-50 decoder, which is asked for a language by a token."""
    torch.manual_seed(3)
    folder.mkdir()
    pieces = Vocabulary(target_model).pieces
    tokenizer = MBart50Tokenizer(
        vocab=[(piece, -float(index)) for index, piece in enumerate(pieces)],
        src_lang="en_XX",
        tgt_lang="de_DE",
    )
    tokenizer.save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)
    encoder = Wav2Vec2Config(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
        mask_feature_prob=0.0,
    )
    decoder = MBartConfig(
        vocab_size=len(tokenizer),
        encoder_layers=2,
        decoder_layers=2,
        d_model=WIDTH,
        decoder_ffn_dim=32,
        decoder_attention_heads=2,
        max_position_embeddings=256,
        init_std=0.5,
        is_decoder=True,
        add_cross_attention=True,
    )
    config = SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = SpeechEncoderDecoderModel(config)
    model.generation_config.update(
        decoder_start_token_id=2, eos_token_id=2, pad_token_id=1, bos_token_id=0
    )
    model.save_pretrained(folder)
    return folder


def whisper(folder: Path) -> Path:
    torch.manual_seed(4)
    folder.mkdir()
    letters = [*byte_alphabet(), "Ġd", "ie", "Ġdie", "Ka"]
    merges = [("Ġ", "d"), ("i", "e"), ("Ġd", "ie"), ("K", "a")]
    tokenizer = WhisperTokenizer(vocab={p: i for i, p in enumerate(letters)}, merges=merges)
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"]
    special += ["<|transcribe|>", "<|notimestamps|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)
    ids = dict(zip(special, tokenizer.convert_tokens_to_ids(special), strict=True))
    end = ids["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=len(tokenizer) + 20,
        **SHAPE,
        max_target_positions=256,
        init_std=0.5,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    settings = {
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": ids["<|en|>"], "<|de|>": ids["<|de|>"]},
        "task_to_id": {"translate": ids["<|translate|>"], "transcribe": ids["<|transcribe|>"]},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "suppress_tokens": [5, 6],
        "begin_suppress_tokens": [7, end],
        "max_length": 256,
    }
    model.generation_config = GenerationConfig(**settings)
    model.save_pretrained(folder)
    return folder
