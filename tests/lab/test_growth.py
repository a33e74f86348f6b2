"""A grown network computes what it computed before."""

import dataclasses

import pytest
import torch

from earvoice.models.config import ModelConfig, TargetLanguage
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.growth import grow, grow_embedding, spread
from earvoice.training.normalisation import Normalisation
from earvoice.training.start import TrainingStart
from earvoice.training.vocabulary_training import train_pieces
from tests.lab.tiny_corpus import PIECES, make_sentence, tiny_model

pytestmark = pytest.mark.torch
TAGS = ("<de>", "<es>")
ROWS = [make_sentence(index) for index in range(40)]
SPANISH = ["coche rojo y viejo", "casa nueva", "el coche verde"] * 10


def make_start() -> TrainingStart:
    """A tiny network whose every tensor has moved away from where it began."""
    source = train_pieces([row.transcript for row in ROWS], PIECES)
    target = train_pieces([row.german for row in ROWS], PIECES)
    config = tiny_model(len(Vocabulary(source)), len(Vocabulary(target)))
    config = dataclasses.replace(
        config, encoder=dataclasses.replace(config.encoder, layers=4, ctc_layer=3)
    )
    torch.manual_seed(3)
    weights = SpeechTranslationModel(config).state_dict()
    moved = {
        name: tensor
        if "num_batches" in name
        else tensor.abs() * 1.2 + 0.1 * torch.rand_like(tensor)
        if "running_var" in name
        else tensor + 0.1 * torch.randn_like(tensor)
        for name, tensor in weights.items()
    }
    moved["decoder.output_projection.weight"] = moved["decoder.embed_tokens.weight"]
    statistics = torch.zeros(80).numpy(), torch.ones(80).numpy()
    return TrainingStart(config, source, target, Normalisation(*statistics), moved)


def grown_shape(config: ModelConfig, target_model: bytes) -> ModelConfig:
    """A deeper network with two languages."""
    return dataclasses.replace(
        config,
        target_languages=tuple(TargetLanguage(tag[1:-1], tag) for tag in TAGS),
        target_pieces=len(Vocabulary(target_model, TAGS)),
        encoder=dataclasses.replace(config.encoder, layers=6, ctc_layer=4),
        decoder=dataclasses.replace(config.decoder, layers=2),
    )


def test_growth_changes_no_output() -> None:
    """Transcript and logits of the pieces that both networks have are equal up to rounding."""
    start = make_start()
    target_model = train_pieces([*SPANISH, *(row.german for row in ROWS)], PIECES + 14)
    grown = grow(start, grown_shape(start.config, target_model), target_model)
    old_pieces = start.target().vocabulary.pieces
    new_pieces = grown.target().vocabulary.pieces
    shared = [piece for piece in old_pieces if piece in new_pieces]
    assert len(shared) > 10
    old_ids = [old_pieces.index(piece) for piece in shared]
    new_ids = [new_pieces.index(piece) for piece in shared]
    features, lengths = torch.randn(2, 90, 80), torch.tensor([90, 70])
    before, after = start.network(0.1).eval(), grown.network(0.1).eval()
    with torch.no_grad():
        old = before(features, lengths, torch.tensor([[EOS, *old_ids]] * 2))
        new = after(features, lengths, torch.tensor([[EOS, *new_ids]] * 2))
    torch.testing.assert_close(new.ctc_log_probs, old.ctc_log_probs, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(
        new.logits[..., new_ids], old.logits[..., old_ids], rtol=0.0, atol=1e-5
    )


def test_grown_layers_learn() -> None:
    """The layers that pass everything on at first get a gradient."""
    start = make_start()
    target_model = train_pieces([*SPANISH, *(row.german for row in ROWS)], PIECES + 14)
    network = grow(start, grown_shape(start.config, target_model), target_model).network(0.0)
    output = network(torch.randn(1, 90, 80), torch.tensor([90]), torch.tensor([[EOS, 5, 6]]))
    torch.autograd.backward(output.logits.square().sum() + output.ctc_log_probs[..., 0].sum())
    for layer in (network.encoder.layers[3], network.encoder.layers[5]):
        gradient = layer.second_feed_forward.second_linear.weight.grad
        assert gradient is not None
        assert gradient.abs().max() > 0


def test_inserted_layers_stand_between_the_old_ones() -> None:
    """Old layers keep their order, and every second place at most is new."""
    assert spread(5, 7) == [0, 1, 2, None, 3, 4, None]
    assert spread(3, 4) == [0, 1, 2, None]
    assert spread(2, 4) == [0, None, 1, None]
    assert spread(2, 2) == [0, 1]


@pytest.mark.parametrize("new", [2, 7])
def test_growth_beyond_twice_the_layers_is_refused(new: int) -> None:
    """Too many layers, or fewer, are named with what is allowed."""
    with pytest.raises(ValueError, match=rf"3 layers cannot grow to {new}; allowed: 3 to 6"):
        spread(3, new)


def test_pieces_of_the_same_spelling_keep_their_embedding() -> None:
    """Whatever their place, known pieces keep their row; new ones are small."""
    old = torch.randn(3, 8)
    grown = grow_embedding(old, ("a", "b", "c"), ("c", "new", "a"))
    assert torch.equal(grown[[0, 2]], old[[2, 0]])
    assert not torch.equal(grown[1], old[1])


def test_a_network_without_weights_cannot_grow() -> None:
    """There is nothing to keep in a fresh one."""
    start = dataclasses.replace(make_start(), weights=None)
    with pytest.raises(ValueError, match="no weights"):
        grow(start, start.config, start.target_model)
