"""A network gets other transcript pieces, and keeps what it has learned."""

import dataclasses

import pytest
import torch

from earvoice.models.vocabulary import Vocabulary
from earvoice.training.respelling import respell
from earvoice.training.vocabulary_training import train_pieces
from tests.lab.test_growth import make_start
from tests.lab.tiny_corpus import PIECES

pytestmark = pytest.mark.torch
WORDS = ["the greenest car", "a house and a garden", "green and blue", "where are the others"] * 10


def test_only_the_head_is_new() -> None:
    """Pieces that were there, and the blank, are read as before; the encoder's states stay."""
    start = make_start()
    respelled = respell(start, train_pieces(WORDS, PIECES + 6))
    features, lengths = torch.randn(2, 90, 80), torch.tensor([90, 70])
    tokens = torch.tensor([[2, 5, 6]] * 2)
    before, after = start.network(0.1).eval(), respelled.network(0.1).eval()
    with torch.no_grad():
        hidden = torch.randn(4, start.config.encoder.d_model)
        old, new = (network.encoder.ctc_fc(hidden) for network in (before, after))
        shapes = after(features, lengths, tokens).logits.shape
    old_pieces, new_pieces = start.source().pieces, respelled.source().pieces
    shared = [piece for piece in old_pieces if piece in new_pieces]
    assert 4 < len(shared) < len(new_pieces)
    for piece in shared:
        row = new[:, new_pieces.index(piece)]
        torch.testing.assert_close(row, old[:, old_pieces.index(piece)])
    torch.testing.assert_close(new[:, -1], old[:, -1])
    assert new.shape[1] == len(new_pieces) + 1
    assert shapes == before(features, lengths, tokens).logits.shape


def test_a_new_piece_begins_between_the_pieces_that_spell_it() -> None:
    """Its row is their mean, the longest ones first; letters nobody knew count as unknown."""
    start = make_start()
    assert start.weights is not None
    model = train_pieces([*WORDS, "zzqq zzqq zzqq zzqq"] * 4, PIECES + 9)
    respelled = respell(start, model)
    assert respelled.weights is not None
    name = "encoder.ctc_fc.weight"
    old, new = Vocabulary(start.source_model), respelled.source()
    piece = next(p for p in new.pieces[4:] if p not in old.pieces and "z" not in p and len(p) > 1)
    spelt = [old.id_of(letters) for letters in _longest(piece, old)]
    torch.testing.assert_close(
        respelled.weights[name][new.id_of(piece)], start.weights[name][spelt].mean(0)
    )
    unknown = start.weights[name][old.id_of("<unk>")]
    torch.testing.assert_close(respelled.weights[name][new.id_of("z")], unknown)


def _longest(piece: str, vocabulary: Vocabulary) -> list[str]:
    for end in range(len(piece), 0, -1):
        if piece[:end] in vocabulary.pieces:
            return [piece[:end], *_longest(piece[end:], vocabulary)]
    return []


def test_a_network_without_weights_cannot_be_respelled() -> None:
    """There is nothing to keep in a fresh one."""
    start = dataclasses.replace(make_start(), weights=None)
    with pytest.raises(ValueError, match="no weights"):
        respell(start, start.source_model)
