"""What training hears."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from earvoice.corpus.extraction import extract
from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.recording import VOICES
from earvoice.corpus.sentence import read_sentences, write_sentences
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.dataset import NO_TARGET, Batch, TrainingData
from earvoice.training.example import Example
from earvoice.training.normalisation import Normalisation
from earvoice.training.recipe import AugmentationRecipe, TrainingRecipe
from earvoice.training.target_text import TargetText
from earvoice.training.truncation import writable_pieces
from tests.lab.tiny_corpus import make_sentence, write_corpus

CLEAR = AugmentationRecipe(
    equaliser_chance=0.0,
    quiet_chance=0.0,
    noise_chance=0.0,
    babble_chance=0.0,
    telephone_chance=0.0,
    floor_nats=(-8.0, -8.0),
    frequency_masks=0,
    time_masks=0,
)


def training_data(corpus: Path, recipe: TrainingRecipe) -> TrainingData:
    """What training hears of a corpus, not normalised."""
    return TrainingData(
        corpus,
        recipe,
        Vocabulary.from_file(corpus / "source.model"),
        TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""}),
        Normalisation(np.zeros(80, np.float32), np.ones(80, np.float32)),
    )


def empty_batch(corpus: Path, babble_chance: float) -> Batch:
    """Ten examples in which nobody speaks to us."""
    recipe = replace(TrainingRecipe(), empty_babble_chance=babble_chance)
    examples = [Example((), 300, seed) for seed in range(10)]
    return training_data(corpus, recipe).assemble(examples, CLEAR)


def middle_loudness(batch: Batch) -> NDArray[np.float32]:
    """Mean log-mel of the middle of each example, away from its edges."""
    return np.asarray(batch.features[:, 100:300].mean(dim=(1, 2)))


def test_other_people_are_heard_and_nothing_is_written(tmp_path: Path) -> None:
    """Babble is as loud as speech, silence is not; both have an empty target."""
    write_corpus(tmp_path)
    babble, silence = empty_batch(tmp_path, 1.0), empty_batch(tmp_path, 0.0)
    assert (middle_loudness(babble) > 0.0).all()
    assert (middle_loudness(silence) < -7.0).all()
    for batch in (babble, silence):
        assert (batch.next_tokens[:, 0] == EOS).all()
        assert batch.transcript_lengths.tolist() == [0] * 10


def told(corpus: Path, batch: Batch) -> list[tuple[str, str]]:
    """The transcript and the translation of each example; every one ends with the end token."""
    source = Vocabulary.from_file(corpus / "source.model")
    target = Vocabulary.from_file(corpus / "target.model")
    transcripts = batch.transcripts.split(batch.transcript_lengths.tolist())
    written = [row[row != NO_TARGET].tolist() for row in batch.next_tokens]
    assert all(row[-1] == EOS for row in written)
    return [
        (source.decode(heard.tolist()), target.decode(row))
        for heard, row in zip(transcripts, written, strict=True)
    ]


def test_a_truncated_input_is_written_as_far_as_it_is_heard(tmp_path: Path) -> None:
    """Of three words one, one, two are heard, and as many of the translation written."""
    write_corpus(tmp_path)
    data = training_data(tmp_path, TrainingRecipe())
    heard, written = make_sentence(0).transcript.split(), make_sentence(0).german.split()
    shares = (0.0, 0.5, 0.7, 1.0)
    batch = data.assemble([Example((0,), 100, 1, heard_share=share) for share in shares], CLEAR)
    assert told(tmp_path, batch) == [
        (" ".join(heard[:count]), " ".join(written[:count])) for count in (1, 1, 2, 3)
    ]
    frames = batch.lengths.tolist()
    assert frames[0] == frames[1] < frames[2] < frames[3]
    ends = batch.transcript_lengths.cumsum(0)
    assert (batch.anchors[ends - 1] < batch.lengths).all()


def test_a_translation_of_more_words_is_rounded_down(tmp_path: Path) -> None:
    """Half of a source lets half of the words be written, not a word more."""
    write_corpus(tmp_path)
    vocabulary = Vocabulary.from_file(tmp_path / "target.model")
    words = ["rot", "neu", "alt", "grün", "Haus"]
    ids = vocabulary.encode(" ".join(words))
    parts = [writable_pieces(ids, heard, 4, vocabulary) for heard in range(5)]
    assert [vocabulary.decode(part) for part in parts] == [
        " ".join(words[:count]) for count in (0, 1, 2, 3, 5)
    ]


def test_a_truncated_joined_input_has_whole_sentences_before(tmp_path: Path) -> None:
    """Only the last sentence is cut off, and silence does not follow it."""
    write_corpus(tmp_path)
    data = training_data(tmp_path, TrainingRecipe())
    whole, cut = Example((0, 1), 300, 5), Example((0, 1), 300, 5, heard_share=0.4)
    batch = data.assemble([whole, cut], CLEAR)
    (all_heard, all_written), (heard, written) = told(tmp_path, batch)
    assert heard.split() == all_heard.split()[:4]
    assert written.split() == all_written.split()[:4]
    last = int(batch.lengths[1])
    assert torch.equal(batch.features[0, : last - 1] > 0, batch.features[1, : last - 1] > 0)
    assert float(batch.features[1, last - 1].mean()) > 0.0


def test_clips_of_sentences_that_are_gone_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a shorter table; how many is told."""
    write_corpus(tmp_path)
    whole = len(training_data(tmp_path, TrainingRecipe()).pool())
    rows = read_sentences(tmp_path / "sentences.tsv")
    write_sentences(tmp_path / "sentences.tsv", rows[1:])
    assert len(training_data(tmp_path, TrainingRecipe()).pool()) == whole - 1
    assert "1 clips left out" in capsys.readouterr().err


def test_voices_of_the_tests_are_not_in_the_corpus(tmp_path: Path) -> None:
    """Every fifth speaker is left out of the features that training reads."""
    (tmp_path / "speech" / "ljspeech").mkdir(parents=True)
    folder = tmp_path / "speech" / VOICES
    folder.mkdir()
    for speaker in (103, 105, 1034, 1040):
        soundfile.write(folder / f"{speaker}-1-0000.flac", np.zeros(8000), 16_000)
    (tmp_path / "corpus" / "clips").mkdir(parents=True)
    extract(tmp_path / "corpus", tmp_path / "speech")
    read = FeatureStore(tmp_path / "corpus" / "features").read()
    assert [clip.key for clip, _ in read] == [f"{VOICES}-103-1-0000", f"{VOICES}-1034-1-0000"]
