"""What a well-behaved caller gets."""

import asyncio

import grpc
import numpy as np
import pytest

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.loading import LoadedDecoder
from tests.integration.decoder.caller import Caller, Reason, attention_of, states_message
from tests.integration.decoder.conftest import RunningDecoder, Serve, random_states
from tests.tiny_model import LAYERS

pytestmark = pytest.mark.torch


async def ready(decoder: RunningDecoder, seed: int = 0) -> Caller:
    caller = decoder.caller()
    await caller.open()
    await caller.states(random_states(seed))
    return caller


async def test_model_is_described_alike_everywhere(
    decoder: RunningDecoder, tiny: LoadedDecoder
) -> None:
    """DescribeModel and the answer to open name the same model."""
    request = pb.DecoderServiceDescribeModelRequest()
    described = (await decoder.stub.DescribeModel(request)).model
    opened = await decoder.caller().open("FR", model_hash=described.hash)
    assert opened.model == described
    assert described.hash == tiny.model.description.hash
    assert list(described.target_language_codes) == ["de", "fr"]
    assert described.decoder_layer_count == LAYERS
    assert described.default_attention_layer == 2
    assert described.parameter_count > 10_000


async def test_steps_are_numbered_from_the_prefix_on(decoder: RunningDecoder) -> None:
    """Indices count the prefix, rows add up to one, the last step is the end or the limit."""
    caller = await ready(decoder, 7)
    found = await caller.generate(1, prefix=[5, 6], max_new_tokens=9)
    assert [step.index for step in found.steps] == list(range(2, 2 + len(found.steps)))
    np.testing.assert_allclose(attention_of(found.steps).sum(1), 1, atol=1e-5)
    assert found.done.step_count == len(found.steps)
    assert all(message.states_id.revision == 1 for message in found.messages)


async def test_text_has_no_blank_and_words_are_marked(
    decoder: RunningDecoder, tiny: LoadedDecoder
) -> None:
    """Text is the piece without its word mark; the mark travels as starts_word."""
    caller = await ready(decoder)
    found = await caller.generate(1)
    table = tiny.model.tokens
    for step in found.steps:
        assert step.text == table.texts[step.token]
        assert step.starts_word == table.starts_word[step.token]
    assert any(table.starts_word)
    assert not any(b" " in text for text in table.texts)


async def test_end_of_sentence_is_a_step_without_text(decoder: RunningDecoder) -> None:
    """The end is told as the last step, drafted or not; forbidding it makes the text go on."""
    for seed in range(50):
        caller = await ready(decoder, seed)
        found = await caller.generate(1, max_new_tokens=200)
        if found.done.reason == Reason.REASON_END_OF_SEQUENCE:
            break
        await caller.close()
    assert found.done.reason == Reason.REASON_END_OF_SEQUENCE
    assert found.steps[-1].end_of_sequence
    assert found.steps[-1].text == b""
    drafted = await caller.generate(2, draft=found.tokens, max_new_tokens=200)
    assert len(drafted.messages) == 1
    assert drafted.done.reason == Reason.REASON_END_OF_SEQUENCE
    assert drafted.done.draft_accepted_count == len(found.tokens)
    endless = await caller.generate(3, forbid_end_of_sequence=True, max_new_tokens=200)
    assert endless.done.reason == Reason.REASON_LIMIT
    assert not any(step.end_of_sequence for step in endless.steps)


async def test_draft_and_first_own_token_come_in_one_message(decoder: RunningDecoder) -> None:
    """What one pass verified is told at once, marked as from the draft."""
    caller = await ready(decoder)
    plain = await caller.generate(1, max_new_tokens=12)
    wrong = 5 if plain.tokens[4] != 5 else 6
    found = await caller.generate(2, draft=[*plain.tokens[:4], wrong], max_new_tokens=12)
    assert [step.from_draft for step in found.messages[0].steps] == [True] * 4 + [False]
    assert [len(message.steps) for message in found.messages[1:]] == [1] * 7
    assert found.tokens == plain.tokens
    assert found.done.draft_accepted_count == 4


async def test_language_token_is_forced_but_not_told(decoder: RunningDecoder) -> None:
    """With a language tag the text differs, and indices still begin at 0."""
    german, french = await ready(decoder), decoder.caller()
    await french.open("fr")
    await french.states(random_states(0))
    one, other = await german.generate(1), await french.generate(1)
    assert one.tokens != other.tokens
    assert other.steps[0].index == 0


async def test_halt_ends_before_the_next_step(serve: Serve, tiny: LoadedDecoder) -> None:
    """After a halt comes exactly one end, and the session goes on."""
    decoder = await serve(tiny.model, tiny.strategy, outbox_events=2)
    caller = await ready(decoder)
    await caller.request(1, forbid_end_of_sequence=True, max_new_tokens=1024)
    first = (await caller.read()).steps
    await caller.write(halt=pb.Halt(generation_id=1))
    await caller.write(halt=pb.Halt(generation_id=99))
    rest = await caller.hypothesis(1)
    assert rest.done.reason == Reason.REASON_HALTED
    assert rest.done.step_count == len(first.steps) + len(rest.steps) < 1024
    assert (await caller.generate(2)).steps


@pytest.mark.parametrize("with_states", [False, True])
async def test_newer_generation_or_states_replace_the_old(
    decoder: RunningDecoder, *, with_states: bool
) -> None:
    """The old generation's end comes before anything of the new one."""
    caller = await ready(decoder)
    await caller.request(1, forbid_end_of_sequence=True, max_new_tokens=1024)
    if with_states:
        await caller.states(random_states(1), revision=2)
    await caller.request(2, revision=1 + with_states, max_new_tokens=3)
    assert (await caller.hypothesis(1)).done.reason == Reason.REASON_REPLACED
    assert (await caller.hypothesis(2)).done.step_count == 3


async def test_every_one_of_many_generations_gets_one_end(decoder: RunningDecoder) -> None:
    """A caller that replaces faster than anything is computed gets all the ends, in order."""
    caller = await ready(decoder)
    for generation_id in range(1, 40):
        await caller.request(generation_id, forbid_end_of_sequence=True, max_new_tokens=50)
    reasons = [(await caller.hypothesis(i)).done.reason for i in range(1, 40)]
    assert reasons[-1] == Reason.REASON_LIMIT
    assert set(reasons[:-1]) <= {Reason.REASON_REPLACED, Reason.REASON_LIMIT}


async def test_half_close_lets_the_last_generation_end(decoder: RunningDecoder) -> None:
    """No more commands is no reason to stop."""
    caller = await ready(decoder)
    await caller.request(1, forbid_end_of_sequence=True, max_new_tokens=20)
    await caller.call.done_writing()
    assert len((await caller.hypothesis(1)).steps) == 20
    assert await caller.call.read() is grpc.aio.EOF
    assert await caller.call.code() == grpc.StatusCode.OK


async def test_halves_are_taken_as_well_as_floats(decoder: RunningDecoder) -> None:
    """States may come in 16 bits; the text is that of the rounded values."""
    states = random_states(3).astype(np.float16)
    caller = await ready(decoder, 3)
    await caller.states(states.astype(np.float32), revision=2)
    expected = await caller.generate(1, revision=2)
    half = states_message(
        states, 3, element_type=types_pb2.ELEMENT_TYPE_FLOAT16, data=states.tobytes()
    )
    await caller.write(states=half)
    assert (await caller.generate(2, revision=3)).tokens == expected.tokens


async def test_timings_add_up(decoder: RunningDecoder) -> None:
    """Queue and computation lie within what has elapsed, and all of them grow."""
    callers = [await ready(decoder, seed) for seed in range(3)]
    for found in await asyncio.gather(*(caller.generate(1) for caller in callers)):
        all_timings = [*(message.timings for message in found.messages), found.done.timings]
        for timings in all_timings:
            assert 0 <= timings.queue_ms + timings.compute_ms <= timings.elapsed_ms + 1e-6
            assert timings.batch_size >= 1
        elapsed = [timings.elapsed_ms for timings in all_timings]
        computed = [timings.compute_ms for timings in all_timings]
        assert elapsed == sorted(elapsed)
        assert computed == sorted(computed)
