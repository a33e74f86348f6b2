"""SentencePiece vocabularies of the corpus."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import sentencepiece

from earvoice.corpus.sentence import read_sentences
from earvoice.models.vocabulary import SPECIALS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence
    from earvoice.training.recipe import TrainingRecipe

_TEXTS_EVERY = 4


def train_vocabularies(corpus: Path, recipe: TrainingRecipe) -> None:
    """Write ``source.model`` (of transcripts) and ``target.model`` (of translations)."""
    rows = _spoken(corpus)
    source = train_pieces((row.transcript for row in rows), recipe.source_pieces)
    target = train_pieces((row.german for row in rows if row.german), recipe.target_pieces)
    (corpus / "source.model").write_bytes(source)
    (corpus / "target.model").write_bytes(target)


def train_source(corpus: Path, pieces: int) -> bytes:
    """Return another vocabulary of the transcripts, `pieces` with specials."""
    return train_pieces((row.transcript for row in _spoken(corpus)), pieces)


def train_joint_target(corpus: Path, pieces: int) -> bytes:
    """Return one vocabulary for both target languages, `pieces` with specials.

    Every spoken sentence counts, and one in four of the sentences that nobody speaks.
    """
    rows = _spoken(corpus)
    rows += read_sentences(corpus / "texts.tsv")[::_TEXTS_EVERY]
    lines = [text for row in rows for text in (row.german, row.spanish) if text]
    return train_pieces(lines, pieces)


def _spoken(corpus: Path) -> list[Sentence]:
    return [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]


def train_pieces(lines: Iterable[str], pieces: int) -> bytes:
    """Train a unigram SentencePiece model whose first ids are the models' specials."""
    model = io.BytesIO()
    bos, pad, eos, unk = SPECIALS
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=pieces,
        model_type="unigram",
        normalization_rule_name="identity",
        character_coverage=0.9998,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        bos_piece=bos,
        pad_piece=pad,
        eos_piece=eos,
        unk_piece=unk,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
