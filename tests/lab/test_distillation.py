"""A text-to-text teacher writes targets, and training learns from them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.corpus.sentence import read_sentences, write_sentences
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.budget import Budget
from earvoice.training.dataset import TrainingData
from earvoice.training.distillation import distil, translate_rows
from earvoice.training.distilled_table import DISTILLED, read_distilled
from earvoice.training.example import Example
from earvoice.training.halves import translate_labels
from earvoice.training.loss import smoothed_cross_entropy
from earvoice.training.normalisation import Normalisation
from earvoice.training.own_teacher import OwnTeacher
from earvoice.training.recipe import (
    HEARD_EXACTLY,
    READ_EXACTLY,
    TeacherRecipe,
    TextRecipe,
    TrainingRecipe,
    distilled,
)
from earvoice.training.target_text import TargetText
from earvoice.training.teacher import TextTeacher
from earvoice.training.teacher_run import TeacherRun
from earvoice.training.text_data import TextData
from tests.lab.tiny_corpus import make_sentence, tiny_model, write_corpus

pytestmark = pytest.mark.torch
SMALL = TeacherRecipe(
    width=32,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    dropout=0.0,
    peak_learning_rate=5e-3,
    warmup_steps=10,
)
STEPS = 600


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny corpus of word-for-word translations."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, 60)
    Normalisation(torch.zeros(80).numpy(), torch.ones(80).numpy()).write(folder)
    return folder


def vocabularies(corpus: Path) -> tuple[Vocabulary, TargetText]:
    """Source and target of the tiny corpus."""
    target = TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""})
    return Vocabulary.from_file(corpus / "source.model"), target


def taught(corpus: Path, path: Path, steps: int = STEPS) -> TextTeacher:
    """A teacher after `steps` steps, of which an earlier run in `path` may have done some."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    source, target = vocabularies(corpus)
    teacher = TextTeacher(tiny_model(len(source), len(target.vocabulary)), SMALL)
    recipe = replace(HEARD_EXACTLY, batch_sentences=16, buckets=2)
    text = TextData(corpus, recipe, source, target)
    TeacherRun(teacher, text, SMALL, Budget(steps=steps), path).run()
    return teacher


def test_a_teacher_learns_and_writes_its_table(corpus: Path, tmp_path: Path) -> None:
    """It translates most unheard sentences right, and leaves rows that are there alone."""
    source, target = vocabularies(corpus)
    teacher = taught(corpus, tmp_path / "teacher.pt")
    teacher.eval()
    asked = [make_sentence(index) for index in range(200, 240) if index % 20 != 19]
    rows = translate_rows(asked, teacher, source, target)
    right = [row.german == wanted.german for row, wanted in zip(rows, asked, strict=True)]
    assert sum(right) >= 0.6 * len(right)
    kept = replace(make_sentence(0), german="Schon da")
    write_sentences(corpus / DISTILLED, [kept])
    distil(corpus, teacher, source, target)
    written = {row.key: row for row in read_sentences(corpus / DISTILLED)}
    assert written["s-0"] == kept
    # Real speech without a translation gets one too: its transcript is enough.
    assert written["s-19"].german
    assert len(written) == 70


def test_a_translation_of_two_sentences_is_refused(tmp_path: Path) -> None:
    """One key names one sentence, spoken or not."""
    write_sentences(tmp_path / DISTILLED, [make_sentence(1), make_sentence(2), make_sentence(2)])
    with pytest.raises(ValueError, match="1 keys stand twice, 's-2' first; allowed: each once"):
        read_distilled(tmp_path)


def test_an_interrupted_teacher_goes_on(corpus: Path, tmp_path: Path) -> None:
    """The steps that are done are not done again."""
    taught(corpus, tmp_path / "teacher.pt", steps=4)
    before = torch.load(tmp_path / "teacher.pt", weights_only=True)
    assert before["step"] == 4
    taught(corpus, tmp_path / "teacher.pt", steps=6)
    assert torch.load(tmp_path / "teacher.pt", weights_only=True)["step"] == 6


def test_training_hears_gold_and_taught_targets(corpus: Path) -> None:
    """With the share of one half both come up; without a share gold alone does."""
    source, target = vocabularies(corpus)
    gold = make_sentence(1)
    write_sentences(corpus / DISTILLED, [replace(gold, german="neu neu")])
    found = {}
    for recipe in (TrainingRecipe(), distilled(TrainingRecipe())):
        data = TrainingData(corpus, recipe, source, target, Normalisation.read(corpus))
        found[recipe.distilled_share] = {
            target.vocabulary.decode(
                data.assemble([Example((1,), 100, seed)], recipe.gentle_augmentation)
                .previous_tokens[0, 1:]
                .tolist()
            )
            for seed in range(20)
        }
    assert found == {0.0: {gold.german}, 0.5: {gold.german, "neu neu"}}


def test_texts_of_a_teacher_are_drawn_when_asked(corpus: Path) -> None:
    """The table is needed only where the recipe wants it."""
    source, target = vocabularies(corpus)
    (corpus / DISTILLED).unlink(missing_ok=True)
    TextData(corpus, TextRecipe(), source, target)
    with pytest.raises(FileNotFoundError):
        TextData(corpus, TextRecipe(distilled=True), source, target)


def test_a_model_is_its_own_teacher(corpus: Path) -> None:
    """Trained on text alone, it writes for transcripts what it was taught, and no text twice."""
    source, target = vocabularies(corpus)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tiny = tiny_model(len(source), len(target.vocabulary))
    config = replace(tiny, encoder=replace(tiny.encoder, d_model=48))
    network = SpeechTranslationModel(config, dropout=0.0)
    recipe = replace(READ_EXACTLY, batch_sentences=16, buckets=2)
    text = TextData(corpus, recipe, source, target)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for step in range(STEPS):
        batch = text.draw(step)
        logits = translate_labels(network, batch.labels, batch.lengths, batch.previous_tokens)
        loss = smoothed_cross_entropy(logits, batch.next_tokens, 0.0)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    teacher = OwnTeacher(network).eval()
    asked = [make_sentence(index) for index in range(40) if index % 20 != 19]
    rows = translate_rows(asked, teacher, source, target)
    right = [row.german == wanted.german for row, wanted in zip(rows, asked, strict=True)]
    assert sum(right) >= 0.6 * len(right)
    (corpus / DISTILLED).unlink(missing_ok=True)
    distil(corpus, teacher, source, target, spoken_only=True)
    spoken = [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]
    assert [row.key for row in read_sentences(corpus / DISTILLED)] == [row.key for row in spoken]
