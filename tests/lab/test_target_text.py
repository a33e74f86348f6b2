"""Two target languages, asked for by their tags."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.corpus.sentence import read_sentences, write_sentences
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.dataset import NO_TARGET, Target, TrainingData, teach
from earvoice.training.example import Example
from earvoice.training.normalisation import Normalisation
from earvoice.training.recipe import TextRecipe, TrainingRecipe
from earvoice.training.target_text import TargetText
from earvoice.training.text_data import TextData
from tests.lab.tiny_corpus import make_sentence, write_corpus

pytestmark = pytest.mark.torch
TAGS = {"de": "<de>", "es": "<es>"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny corpus in which every second sentence has Spanish too."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    for name in ("sentences.tsv", "texts.tsv"):
        rows = read_sentences(folder / name)
        write_sentences(
            folder / name,
            [replace(row, spanish=row.german) if i % 2 else row for i, row in enumerate(rows)],
        )
    statistics = torch.zeros(80).numpy(), torch.ones(80).numpy()
    Normalisation(*statistics).write(folder)
    return folder


def target_text(corpus: Path) -> TargetText:
    """The corpus's target vocabulary with two tags."""
    model = (corpus / "target.model").read_bytes()
    return TargetText(Vocabulary(model, tuple(TAGS.values())), TAGS)


def test_a_translation_begins_with_its_tag() -> None:
    """The tag is given; what follows it is learned, and so is the end."""
    previous, following = teach([Target([EOS, 90], [5, 6]), Target([EOS], [], known=False)])
    assert previous[0].tolist() == [EOS, 90, 5, 6]
    assert following[0].tolist() == [NO_TARGET, 5, 6, EOS]
    assert set(following[1].tolist()) == {NO_TARGET}


def test_speech_is_translated_into_languages_that_it_has(corpus: Path) -> None:
    """Both come up where both exist; German alone is German."""
    target, source = target_text(corpus), Vocabulary.from_file(corpus / "source.model")
    recipe = TrainingRecipe()
    data = TrainingData(corpus, recipe, source, target, Normalisation.read(corpus))
    tags = {code: target.vocabulary.id_of(tag) for code, tag in TAGS.items()}
    asked: dict[int, set[int]] = {0: set(), 1: set()}
    for clip, seen in asked.items():
        for seed in range(20):
            batch = data.assemble([Example((clip,), 100, seed)], recipe.gentle_augmentation)
            seen.add(int(batch.previous_tokens[0, 1]))
    assert asked == {0: {tags["de"]}, 1: set(tags.values())}


def test_joined_texts_have_one_language(corpus: Path) -> None:
    """A batch's targets begin with a tag, and no other tag follows."""
    target, source = target_text(corpus), Vocabulary.from_file(corpus / "source.model")
    text = TextData(corpus, TextRecipe(batch_sentences=8, buckets=2), source, target)
    tags = {target.vocabulary.id_of(tag) for tag in TAGS.values()}
    found = set()
    for seed in range(6):
        for row in text.draw(seed).previous_tokens.tolist():
            assert row[0] == EOS
            assert [token in tags for token in row].count(True) == 1
            found.add(row[1])
    assert found == tags


def test_real_speech_has_no_translation(corpus: Path) -> None:
    """A sentence without translation encodes to nothing."""
    assert target_text(corpus).encode(make_sentence(19)) == {}
