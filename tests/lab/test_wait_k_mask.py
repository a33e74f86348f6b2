"""Wait-k training: each target word is written with the first words of the source alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, PAD, Vocabulary
from earvoice.training.wait_k_mask import wait_k_mask
from tests.tiny_model import (
    SOURCE_TEXT,
    TARGET_TEXT,
    random_network,
    tiny_config,
    train_sentencepiece,
)

pytestmark = pytest.mark.torch

WORDS = (" ".join(SOURCE_TEXT).split(), " ".join(TARGET_TEXT).split())


@pytest.fixture(scope="module")
def source() -> Vocabulary:
    """Pieces of the transcript."""
    return Vocabulary(train_sentencepiece(SOURCE_TEXT))


@pytest.fixture(scope="module")
def target() -> Vocabulary:
    """Pieces of the translation, and the tag of a language."""
    return Vocabulary(train_sentencepiece(TARGET_TEXT), ["<de>"])


def spell(words: list[str], source: Vocabulary, repeats: list[int]) -> tuple[list[int], list[int]]:
    """Return labels with repeats and blanks, and the number of the word that each belongs to."""
    blank = len(source)
    labels, numbers = [blank], [0]
    for number, word in enumerate(words, start=1):
        for place, piece in enumerate(source.encode(word)):
            times = repeats[(number + place) % len(repeats)]
            labels += [*[piece] * times, blank]
            numbers += [number] * (times + 1)
    return labels, numbers


def write(words: list[str], target: Vocabulary) -> tuple[list[int], list[int]]:
    """Return what the decoder reads, and the number of the word that each row writes."""
    pieces = [target.encode(word) for word in words]
    tokens = [EOS, target.id_of("<de>"), *(piece for row in pieces for piece in row)]
    written = [number for number, row in enumerate(pieces, start=1) for _ in row]
    return tokens, [1, *written, len(words) + 1]


@given(
    k=st.integers(1, 4),
    heard=st.lists(st.sampled_from(WORDS[0]), min_size=1, max_size=6),
    said=st.lists(st.sampled_from(WORDS[1]), min_size=1, max_size=6),
    repeats=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_word_t_sees_the_first_k_plus_t_less_one(
    source: Vocabulary,
    target: Vocabulary,
    k: int,
    heard: list[str],
    said: list[str],
    repeats: list[int],
) -> None:
    """Whatever is heard and written, row by row and state by state (Papi 2022, section 3)."""
    labels, numbers = spell(heard, source, repeats)
    tokens, rows = write(said, target)
    visible = wait_k_mask(k, source, target)(torch.tensor([labels]), torch.tensor([tokens]))
    assert visible[0].tolist() == [[number <= k + row - 1 for number in numbers] for row in rows]


def test_padding_changes_nothing(source: Vocabulary, target: Vocabulary) -> None:
    """In a batch with longer sentences, a sentence sees what it sees alone."""
    labels, _ = spell(WORDS[0][:3], source, [1])
    tokens, _ = write(WORDS[1][:3], target)
    mask = wait_k_mask(2, source, target)
    alone = mask(torch.tensor([labels]), torch.tensor([tokens]))[0]
    padded = mask(torch.tensor([[*labels, -1, -1]]), torch.tensor([[*tokens, PAD]]))[0]
    assert torch.equal(padded[: len(tokens), : len(labels)], alone)


def test_k_below_one_is_refused(source: Vocabulary, target: Vocabulary) -> None:
    """A word cannot be written before anything is heard."""
    with pytest.raises(ValueError, match="wait_k = 0; allowed: 1 and above"):
        wait_k_mask(0, source, target)


@pytest.fixture
def network(source: Vocabulary, target: Vocabulary) -> SpeechTranslationModel:
    """A tiny network for these vocabularies, random everywhere."""
    config = tiny_config(source.model, target.model)
    return random_network(replace(config, target_pieces=len(target)))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_what_comes_later_changes_nothing(
    source: Vocabulary, target: Vocabulary, network: SpeechTranslationModel, k: int
) -> None:
    """Logits up to the t-th word do not depend on states after its g(t) words; later ones do."""
    labels, _ = spell(WORDS[0][:6], source, [1])
    tokens = torch.tensor([write(WORDS[1][:3], target)[0]])
    visible = wait_k_mask(k, source, target)(torch.tensor([labels]), tokens)
    states = torch.randn(1, len(labels), network.config.encoder.d_model)
    lengths = torch.tensor([len(labels)])
    logits = network.decoder(tokens, states, lengths, visible)[0]
    for row in range(tokens.shape[1]):
        unseen = ~visible[:, row]
        changed = torch.where(unseen[..., None], torch.randn_like(states), states)
        other = network.decoder(tokens, changed, lengths, visible)[0]
        torch.testing.assert_close(other[: row + 1], logits[: row + 1])
        later = (visible[0] & unseen).any(1)
        assert ((other - logits).abs().amax(1) > 1e-4).tolist() == later.tolist()


def test_speech_is_written_through_the_mask(network: SpeechTranslationModel) -> None:
    """A mask is asked with the states' labels; where it shows one state, the others are unheard."""
    features, lengths = torch.randn(2, 240, 80), torch.tensor([240, 160])
    tokens = torch.tensor([[EOS, 9, 12], [EOS, 7, 5]])
    memory = network.encoder(features, lengths)

    def see_first(labels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        assert torch.equal(labels, memory.labels)
        return (torch.arange(labels.shape[1]) == 0).expand(*tokens.shape, -1)

    logits, _ = network(features, lengths, tokens, see_first)
    alone = network.decoder(tokens, memory.states[:, :1], torch.tensor([1, 1]))
    torch.testing.assert_close(logits, alone)
    assert (logits - network(features, lengths, tokens)[0]).abs().amax() > 1e-3


def test_of_a_text_every_piece_counts(source: Vocabulary, target: Vocabulary) -> None:
    """A word said twice is two, and the end of the sentence comes with the last."""
    word = source.encode("the")
    labels = torch.tensor([[*word, *word, EOS, -1]])
    tokens = torch.tensor([write(["das", "das", "das"], target)[0]])
    visible = wait_k_mask(1, source, target, reads_words=True)(labels, tokens)[0]
    size, rows = len(word), write(["das", "das", "das"], target)[1]
    seen = {1: size, 2: 2 * size + 2, 3: 2 * size + 2, 4: 2 * size + 2}
    assert visible.sum(1).tolist() == [seen[row] for row in rows]
