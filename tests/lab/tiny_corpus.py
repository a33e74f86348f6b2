"""A corpus small enough to train on in a test."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from earvoice.corpus.feature_store import FeatureClip, FeatureStore
from earvoice.corpus.sentence import Sentence, write_sentences
from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.training.vocabulary_training import train_pieces

WORDS = {"red": "rot", "green": "grün", "car": "Auto", "house": "Haus", "old": "alt", "new": "neu"}
PIECES = 20


def make_sentence(index: int) -> Sentence:
    """A sentence of three words; the last of twenty is real speech without translation."""
    generator = np.random.default_rng(index)
    words = [list(WORDS)[i] for i in generator.integers(0, len(WORDS), 3)]
    text = " ".join(words)
    translated = index % 20 != 19
    return Sentence(
        key=f"s-{index}",
        split="train",
        domain="test",
        group=f"g-{index // 4}",
        speaker="a",
        spoken=text,
        transcript=text,
        german=" ".join(WORDS[word] for word in words) if translated else "",
        spanish="",
    )


def write_corpus(folder: Path, count: int = 40, again: str = "") -> None:
    """Write sentences, texts, features and vocabularies; all are said `again` under that suffix."""
    sentences = [make_sentence(index) for index in range(count)]
    write_sentences(folder / "sentences.tsv", sentences)
    write_sentences(folder / "texts.tsv", [make_sentence(index) for index in range(100, 110)])
    generator = np.random.default_rng(0)
    lengths = generator.integers(60, 120, count)
    features = [generator.normal(10, 2, (n, 80)).astype(np.float16) for n in lengths]
    clips = [
        FeatureClip(row.key, row.key, "test", int(n))
        for row, n in zip(sentences, lengths, strict=True)
    ]
    store = FeatureStore(folder / "features")
    store.write("clips", clips, features)
    if again:
        more = [replace(clip, key=clip.key + again) for clip in clips]
        store.write("more-clips", more, features)
    store.write("voices", [FeatureClip("voice", "", "test", 200)], [features[0].repeat(4, 0)[:200]])
    (folder / "source.model").write_bytes(
        train_pieces((row.transcript for row in sentences), PIECES)
    )
    (folder / "target.model").write_bytes(
        train_pieces((row.german for row in sentences if row.german), PIECES)
    )


def tiny_model(source_pieces: int, target_pieces: int) -> ModelConfig:
    """The smallest network with a layer on each side of the CTC head."""
    return ModelConfig(
        name="tiny",
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("de"),),
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        encoder=EncoderConfig(
            d_model=16,
            heads=2,
            ffn_multiplier=2,
            layers=2,
            ctc_layer=1,
            depthwise_kernel=3,
            subsampler=SubsamplerConfig(layers=3, kernel_frames=5, channels=16),
        ),
        decoder=DecoderConfig(layers=1, heads=2, ffn_width=32, tied_embeddings=True),
        policy_defaults=PolicyDefaults(attention_layer=1),
    )
