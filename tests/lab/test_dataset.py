"""What training hears."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from earvoice.corpus.extraction import extract
from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.recording import VOICES
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.dataset import Batch, TrainingData
from earvoice.training.example import Example
from earvoice.training.normalisation import Normalisation
from earvoice.training.recipe import AugmentationRecipe, TrainingRecipe
from earvoice.training.target_text import TargetText
from tests.lab.tiny_corpus import write_corpus

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


def empty_batch(corpus: Path, babble_chance: float) -> Batch:
    """Ten examples in which nobody speaks to us, not normalised."""
    recipe = replace(TrainingRecipe(), empty_babble_chance=babble_chance)
    data = TrainingData(
        corpus,
        recipe,
        Vocabulary.from_file(corpus / "source.model"),
        TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""}),
        Normalisation(np.zeros(80, np.float32), np.ones(80, np.float32)),
    )
    return data.assemble([Example((), 300, seed) for seed in range(10)], CLEAR)


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
