"""Incremental decoding equals teacher forcing; a batch equals each session alone."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.decoder.beam import begin_beam
from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Prompt, StateBlock, block_of
from earvoice.models.config import ModelConfig
from earvoice.models.decoding import DecoderCache, Pivot, likeliest
from earvoice.models.errors import ModelError, ModelFieldError
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, PAD
from tests.tiny_model import random_network

pytestmark = pytest.mark.torch

TOKENS = [2, 7, 9, 4, 21, 9, 30, 11, 5, 6, 17, 8]


def transducer(config: ModelConfig) -> ModelConfig:
    return replace(config, decoder=replace(config.decoder, predictor_layers=3))


@pytest.fixture(
    scope="module",
    params=["plain", "prepared", "plain transducer", "prepared transducer"],
)
def network(config: ModelConfig, request: pytest.FixtureRequest) -> SpeechTranslationModel:
    network = random_network(transducer(config) if "transducer" in request.param else config)
    if "prepared" in request.param:
        network.prepare_inference(torch.float32)
    return network


def _states(count: int) -> torch.Tensor:
    return torch.randn(count, 32, generator=torch.Generator().manual_seed(count))


def test_steps_equal_teacher_forcing(network: SpeechTranslationModel) -> None:
    """Token by token, in one prefill, and in the training pass: the same logits."""
    states = _states(9)
    with torch.inference_mode():
        forced = network.decoder(torch.tensor([TOKENS]), states[None], torch.tensor([9]))[0]
    prefilled, rows = network.decoder.prefill(TOKENS, network.decoder.open_cache(states), 2)
    cache = network.decoder.open_cache(states)
    for index, token in enumerate(TOKENS):
        logits, attention = network.decoder.step([token], [cache], [2])
        torch.testing.assert_close(logits[0], forced[index], atol=1e-5, rtol=0)
        torch.testing.assert_close(attention[0], rows[index], atol=1e-5, rtol=0)
    torch.testing.assert_close(prefilled, forced, atol=1e-5, rtol=0)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_language_may_have_layers_of_its_own(config: ModelConfig, prepared: bool) -> None:
    """Alone, in a batch with another language, and in training: as a network of these layers."""
    own = replace(config, decoder=replace(config.decoder, own_layers=(7,)))
    network, single = random_network(own), random_network(config)
    shared = {n: t for n, t in network.decoder.state_dict().items() if not n.startswith("own.")}
    single.decoder.load_state_dict(
        shared | network.transformer_decoder.own["7"].state_dict(), strict=True
    )
    other = [2, 8, *TOKENS[2:]]
    states = _states(9)
    memory, counts = states.expand(2, -1, -1), torch.tensor([9, 9])
    decoder = network.transformer_decoder
    with torch.inference_mode():
        expected = single.decoder(torch.tensor([TOKENS]), states[None], counts[:1])[0]
        forced = decoder(torch.tensor([TOKENS, other]), memory, counts)
    torch.testing.assert_close(forced[0], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(forced[0, 2:], forced[1, 2:], atol=0.1)
    if prepared:
        network.prepare_inference(torch.float32)
    caches = [decoder.open_cache(states, tokens) for tokens in (TOKENS, other)]
    for index, pair in enumerate(zip(TOKENS, other, strict=True)):
        logits, _ = decoder.step([*pair], caches, [1, 2])
        torch.testing.assert_close(logits, forced[:, index], atol=1e-5, rtol=0)
    prefilled, _ = decoder.prefill(TOKENS, decoder.open_cache(states, TOKENS), 1)
    torch.testing.assert_close(prefilled, forced[0], atol=1e-5, rtol=0)
    with pytest.raises(ModelError, match=r"tokens begin with \[2, 7\]"):
        decoder.prefill(TOKENS, decoder.open_cache(states, other), 1)


@pytest.mark.parametrize(
    ("dtype", "kept_in_8_bits"),
    [(torch.bfloat16, False), (torch.int8, False), (torch.float32, True), (torch.bfloat16, True)],
)
def test_the_likeliest_pieces_are_told_apart_where_products_round(
    config: ModelConfig, dtype: torch.dtype, kept_in_8_bits: bool
) -> None:
    """Two that differ by a thousandth: in fewer bits their logits would be equal."""
    config = replace(config, decoder=replace(config.decoder, tied_embeddings=True))
    network = random_network(config)
    decoder, states = network.transformer_decoder, _states(9)
    likeliest = int(decoder.prefill(TOKENS, decoder.open_cache(states), 1)[0][-1].argmax())
    unread = next(piece for piece in range(EOS + 1, 64) if piece not in (*TOKENS, likeliest))
    with torch.no_grad():
        if kept_in_8_bits:
            largest = decoder.embed_tokens.weight.abs().amax(1, keepdim=True)
            scales = largest.clamp(min=1e-6) / 127
            decoder.embed_tokens.weight.div_(scales).round_().mul_(scales)
        decoder.embed_tokens.weight[unread] = 1.001 * decoder.embed_tokens.weight[likeliest]
    network.prepare_inference(dtype)
    cache = decoder.open_cache(states)
    prefilled = decoder.prefill(TOKENS[:-1], cache, 1)[0]
    stepped = decoder.step(TOKENS[-1:], [cache], [1])[0]
    again = decoder.prefill(TOKENS, decoder.open_cache(states), 1)[0]
    for logits in (stepped[0], again[-1]):
        assert int(logits.argmax()) == unread
        assert float(logits[unread] / logits[likeliest]) == pytest.approx(1.001, abs=1e-5)
    assert bool(prefilled.isfinite().all())


@pytest.mark.parametrize(
    ("dtype", "every", "near"),
    [(None, 3, 1e-5), (torch.float32, 3, 1e-5), (torch.bfloat16, 15, 0.1), (torch.int8, 3, 0.2)],
)
def test_a_translation_is_made_of_its_shortlist_and_what_it_copies(
    config: ModelConfig, dtype: torch.dtype | None, every: int, near: float
) -> None:
    """What it writes keeps its logit; alone, in a batch with the source language, and in a beam.

    The source language is made of a list of its own, and no surer for that. In bf16 that of
    translations is shorter than the number of pieces whose logits are exact.
    """
    shape = replace(
        config.decoder, own_layers=(7,), pivot_layers=1, tied_embeddings=True, shortlist=True
    )
    network = random_network(replace(config, decoder=shape))
    decoder, states = network.transformer_decoder, _states(9)
    translated, whole = [2, 8, *TOKENS[2:]], torch.arange(config.target_pieces)
    pivot = Pivot([30, 11, 45, EOS], [0.0] * 4, torch.full((4, 9), 1 / 9))
    with torch.inference_mode():
        read = decoder.read_pivot(torch.tensor([pivot.tokens]))
        logits = decoder(torch.tensor([translated]), read, torch.tensor([4]))[0]
        spoken = decoder(torch.tensor([TOKENS]), states[None], torch.tensor([9]))[0].log_softmax(-1)
    own = whole % 5 != 1
    decoder.shortlist = torch.stack((own, (whole % every == 0) | (whole == EOS))).float()
    written = (decoder.shortlist[1] > 0) | (whole == 11) | (whole == 30) | (whole == 45)
    expected = logits.masked_fill(~written, -torch.inf)
    if dtype is not None:
        network.prepare_inference(dtype)
    cache = decoder.open_cache(states, translated, pivot)
    found, _ = decoder.prefill(translated, cache, 1)
    torch.testing.assert_close(found, expected, atol=near, rtol=0)
    source, beam = decoder.open_cache(states, TOKENS), cache.fresh().as_beam()
    for index, pair in enumerate(zip(translated, TOKENS, strict=True)):
        stepped, _ = decoder.step([*pair], [beam, source], [1, 1])
        assert torch.equal(stepped[1].isfinite(), own | (whole == PAD))
        surely = stepped[1].log_softmax(-1)
        torch.testing.assert_close(surely[own], spoken[index, own], atol=near, rtol=0)
        torch.testing.assert_close(stepped[0], expected[index], atol=near, rtol=0)
    opening, plan = Prompt((2, 8), (), 1, forbid_end=True), BeamPlan(3, max_new_tokens=2)
    run, _ = begin_beam(decoder.prefill, cache.fresh(), opening, plan, is_transducer=False)
    assert all(written[token] for token in run.last_tokens)


@pytest.mark.parametrize("row", [0, 1])
def test_a_shortlist_without_the_end_of_a_sentence_is_refused(
    config: ModelConfig, row: int
) -> None:
    shape = replace(
        config.decoder, own_layers=(7,), pivot_layers=1, tied_embeddings=True, shortlist=True
    )
    network = random_network(replace(config, decoder=shape))
    network.transformer_decoder.shortlist[row, EOS] = 0
    with pytest.raises(ModelError, match="shortlist lacks the end of a sentence"):
        network.prepare_inference(torch.float32)
    with pytest.raises(ModelFieldError, match=r"shortlist = True is not allowed"):
        replace(shape, tied_embeddings=False)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_language_may_be_translated_from_what_another_writes(
    config: ModelConfig, prepared: bool
) -> None:
    """As if that were written first, and then read; attention is told over the states."""
    shape = replace(config.decoder, own_layers=(7,), pivot_layers=2)
    network = random_network(replace(config, decoder=shape))
    decoder, states, reading = network.transformer_decoder, _states(24), TOKENS[:2]
    source, text, heard = decoder.open_cache(states, reading), list[int](), list[torch.Tensor]()
    while len(text) < 28 and EOS not in text:
        logits, rows = decoder.prefill(reading, source, config.policy_defaults.attention_layer)
        reading = [int(logits[-1, EOS:].argmax()) + EOS]
        text += reading
        heard.append(rows[-1])
    translated = [2, 8, *TOKENS[2:]]
    with torch.inference_mode():
        read = decoder.read_pivot(torch.tensor([text]))
        expected = decoder(torch.tensor([translated]), read, torch.tensor([len(text)]))[0]
    if prepared:
        network.prepare_inference(torch.float32)
    message = block_of(states.numpy()).message
    for known in ([], text, text[:3], [*text[:2], 9, 9, 9], [9] * 60):
        cache = SearchStrategy(decoder).memory_of(StateBlock(message, known), translated)
        assert cache.pivot is not None
        assert cache.pivot.tokens == text == known
        torch.testing.assert_close(cache.pivot.attention, torch.stack(heard), atol=1e-5, rtol=0)
        logits, attention = decoder.prefill(translated, cache, 1)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(attention.sum(1), torch.ones(len(translated)))
        assert attention.shape == (len(translated), len(states))
    stepped, rows = decoder.step([EOS], [cache.fresh()], [1])
    torch.testing.assert_close(stepped[0], logits[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(rows[0], attention[0], atol=1e-5, rtol=0)
    for tokens, pivot in ((translated, None), (TOKENS, cache.pivot)):
        with pytest.raises(ModelError, match="pivot is"):
            decoder.open_cache(states, tokens, pivot)


def test_each_node_of_a_lattice_is_a_pass_of_its_own(config: ModelConfig) -> None:
    """A transducer after part of the text, with what was heard by then: the same logits."""
    decoder = random_network(transducer(config)).decoder
    counts = torch.tensor([[2, 5, 9], [1, 3, 1]])
    memory = torch.randn(2, 3, 9, 32, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([TOKENS[:6], TOKENS[6:]])
    with torch.inference_mode():
        lattice = decoder.lattice(tokens, memory, counts)
    for row, step in product(range(2), range(3)):
        states = memory[row, step, : counts[row, step]]
        for length in (1, 4, 6):
            text = tokens[row, :length].tolist()
            logits, attention = decoder.prefill(text, decoder.open_cache(states), 1)
            torch.testing.assert_close(lattice[row, step, :length], logits, atol=1e-5, rtol=0)
            assert attention.shape == (length, len(states))


def test_batched_step_equals_alone(network: SpeechTranslationModel) -> None:
    """Sessions of different states, lengths and layers do not see each other."""
    sizes, lengths, layers = [5, 1, 40, 12, 7], [3, 1, 11, 6, 2], [1, 2, 2, 1, 1]
    together: list[DecoderCache] = []
    alone: list[DecoderCache] = []
    for size, length in zip(sizes, lengths, strict=True):
        for caches in (together, alone):
            cache = network.decoder.open_cache(_states(size))
            network.decoder.prefill(TOKENS[:length], cache, 1)
            caches.append(cache)
    for round_tokens in ([4, 5, 6, 7, 8], [9, 10, 11, 12, 13]):
        logits, rows = network.decoder.step(round_tokens, together, layers)
        for index, token in enumerate(round_tokens):
            expected, row = network.decoder.step([token], [alone[index]], [layers[index]])
            torch.testing.assert_close(logits[index], expected[0], atol=1e-5, rtol=0)
            torch.testing.assert_close(rows[index], row[0], atol=1e-5, rtol=0)
            assert rows[index].shape == (sizes[index],)


@settings(max_examples=25, deadline=None)
@given(kept=st.integers(1, len(TOKENS) - 1), draft=st.lists(st.integers(4, 30), max_size=90))
def test_truncated_draft_leaves_no_trace(
    network: SpeechTranslationModel, kept: int, draft: list[int]
) -> None:
    """Prefill with a rejected draft, cut back and go on: as if the draft had never been."""
    states = _states(6)
    fresh, used = network.decoder.open_cache(states), network.decoder.open_cache(states)
    network.decoder.prefill(TOKENS[:kept], fresh, 1)
    network.decoder.prefill(TOKENS[:kept] + draft, used, 1)
    used.truncate(kept)
    for cache in (fresh, used):
        assert cache.length == kept
    expected = network.decoder.prefill(TOKENS[kept:], fresh, 1)
    output = network.decoder.prefill(TOKENS[kept:], used, 1)
    for value, reference in zip(output, expected, strict=True):
        torch.testing.assert_close(value, reference, atol=1e-5, rtol=0)


def test_attention_is_a_distribution(network: SpeechTranslationModel) -> None:
    """Each row over the encoder states adds up to one."""
    _, rows = network.decoder.prefill(TOKENS, network.decoder.open_cache(_states(8)), 1)
    assert rows.shape == (len(TOKENS), 8)
    torch.testing.assert_close(rows.sum(1), torch.ones(len(TOKENS)))


def test_heads_are_chosen(network: SpeechTranslationModel) -> None:
    """The mean over all heads is the mean of each head's own rows."""
    decoder, states = network.decoder, _states(8)
    _, mean = decoder.prefill(TOKENS, decoder.open_cache(states), 1)
    rows = [decoder.prefill(TOKENS, decoder.open_cache(states), 1, (h,))[1] for h in (1, 2)]
    assert not torch.allclose(rows[0], rows[1], atol=1e-3)
    torch.testing.assert_close((rows[0] + rows[1]) / 2, mean)
    _, both = decoder.prefill(TOKENS, decoder.open_cache(states), 1, (2, 1))
    torch.testing.assert_close(both, mean)


@pytest.mark.parametrize("layer", [1, 2], ids=["first layer", "last layer"])
@pytest.mark.parametrize("first_attention", [0, 5, 9, 11])
def test_rows_are_computed_where_they_are_wanted(
    network: SpeechTranslationModel, layer: int, first_attention: int
) -> None:
    """Leaving out the first rows' logits and attention changes nothing else, nor later steps."""
    decoder, states = network.decoder, _states(8)
    caches = [decoder.open_cache(states) for _ in range(2)]
    whole = decoder.prefill(TOKENS, caches[0], layer)
    logits, attention = decoder.prefill(
        TOKENS, caches[1], layer, first_logits=9, first_attention=first_attention
    )
    torch.testing.assert_close(logits, whole[0][9:])
    torch.testing.assert_close(attention, whole[1][first_attention:])
    steps = [decoder.step([7], [cache], [layer])[0] for cache in caches]
    torch.testing.assert_close(*steps)


def test_bad_requests_are_refused(network: SpeechTranslationModel) -> None:
    """Empty or unknown tokens, layers, states and lengths are named and refused."""
    decoder, cache = network.decoder, network.decoder.open_cache(_states(3))
    with pytest.raises(ModelError, match="tokens is"):
        decoder.prefill([], cache, 1)
    with pytest.raises(ModelError, match="token is 1000"):
        decoder.step([1000], [cache], [1])
    with pytest.raises(ModelError, match="attention_layer is"):
        decoder.prefill([2], cache, 0)
    with pytest.raises(ModelError, match="attention_heads is"):
        decoder.prefill([2], cache, 1, (3,))
    with pytest.raises(ModelError, match="equal numbers"):
        decoder.step([2], [], [1])
    with pytest.raises(ModelError, match="1 tokens, one a row"):
        decoder.step([2, 2], [cache], [1])
    with pytest.raises(ModelError, match="states have shape"):
        decoder.open_cache(torch.zeros(0, 32))
    with pytest.raises(ModelError, match="length is 1"):
        cache.truncate(1)
    assert cache.length == 0


@given(st.integers(1, 3), st.integers(1, 700), st.integers(1, 20), st.integers(0, 2**32))
def test_the_likeliest_are_those_of_a_whole_sort(rows: int, pieces: int, count: int, seed: int):
    """However many pieces there are, and where most must not be chosen."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, pieces, generator=generator)
    scores[torch.rand(rows, pieces, generator=generator) < 0.3] = -torch.inf
    count = min(count, pieces)
    values, indices = likeliest(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(values, scores.gather(1, indices))
    assert all(len(set(row)) == count for row in indices.tolist())
