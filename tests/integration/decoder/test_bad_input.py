"""What a caller that errs is told, and that nobody else notices."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import StatusCode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from tests.integration.decoder.caller import Caller, facts_of, states_message, was_too_late
from tests.integration.decoder.conftest import RunningDecoder, random_states

pytestmark = pytest.mark.torch

STATES = random_states(0, 5)
BROKEN = np.where(np.arange(STATES.size).reshape(STATES.shape) == 7, np.nan, STATES)
INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 5)
Write = Callable[[Caller], Awaitable[Any]]


def states(**changes: Any) -> Write:
    async def write(caller: Caller) -> None:
        await caller.open()
        await caller.write(states=states_message(STATES, **changes))

    return write


def generate(revision: int = 1, **fields: Any) -> Write:
    async def write(caller: Caller) -> None:
        await states()(caller)
        await caller.request(1, revision, **fields)

    return write


async def nothing_set(caller: Caller) -> None:
    await caller.write()


async def second_open(caller: Caller) -> None:
    await caller.open()
    await caller.open()


async def not_a_number(caller: Caller) -> None:
    await caller.open()
    await caller.states(BROKEN)
    await caller.generate(1)


def too_large(beam_size: int) -> Write:
    """A search over states that overflow in the network."""

    async def write(caller: Caller) -> None:
        await caller.open()
        await caller.states(np.full_like(STATES, 3e38))
        await caller.generate(1, beam_size=beam_size)

    return write


async def no_states(caller: Caller) -> None:
    await caller.open()
    await caller.states(STATES[:0])
    await caller.generate(1)


ORDER = (StatusCode.FAILED_PRECONDITION, "OUT_OF_ORDER")
FIELD = (StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
CASES = {
    "nothing set": (nothing_set, FIELD, "command"),
    "halt first": (lambda caller: caller.write(halt=pb.Halt()), ORDER, "before open"),
    "second open": (second_open, ORDER, "twice"),
    "other model": (
        lambda caller: caller.open(model_hash="beef"),
        (StatusCode.FAILED_PRECONDITION, "MODEL_MISMATCH"),
        "beef",
    ),
    "other language": (
        lambda caller: caller.open("xx"),
        (StatusCode.INVALID_ARGUMENT, "LANGUAGE_NOT_SUPPORTED"),
        "'xx' is not allowed; allowed: de, fr",
    ),
    "beam": (
        lambda caller: caller.open(beam_size=17),
        FIELD,
        "open.beam_size = 17 is not allowed; allowed: 1 to 16, or 0 for default",
    ),
    "heads": (
        lambda caller: caller.open(attention_heads=[5]),
        FIELD,
        "open.attention_heads = [5] is not allowed; allowed: 1 to 4, each once",
    ),
    "part of the states": (
        states(first_changed=2),
        (StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED"),
        "first_changed = 2",
    ),
    "broken data": (states(data=b"abc"), FIELD, "3 bytes"),
    "no element type": (states(element_type=0), FIELD, "element_type = 0"),
    "not a number": (not_a_number, FIELD, "NaN"),
    "no states": (no_states, FIELD, "0 states"),
    "unknown states": (
        generate(revision=2),
        (StatusCode.FAILED_PRECONDITION, "STATES_UNKNOWN"),
        "0.2",
    ),
    "unknown token": (generate(prefix=[5, 70_000]), FIELD, "generate.prefix = 70000"),
    "negative draft": (generate(draft=[-4]), FIELD, "generate.draft = -4"),
    "heads without a layer": (
        generate(attention_heads=[1]),
        FIELD,
        "generate.attention_heads = [1]",
    ),
    "states too large": (too_large(beam_size=1), FIELD, "states.data = 'numbers too large'"),
    "beam over states too large": (
        too_large(beam_size=3),
        FIELD,
        "states.data = 'numbers too large'",
    ),
    "no tokens wanted": (generate(max_new_tokens=0), FIELD, "1 to 1024"),
}


@pytest.mark.parametrize("case", CASES)
async def test_mistake_gets_its_status_and_reason(decoder: RunningDecoder, case: str) -> None:
    """Code, reason, field, value; and the next caller is served."""
    write, status, message = CASES[case]
    caller = decoder.caller()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _until_error(caller, write)
    *found, found_message = facts_of(caught.value)
    assert tuple(found) == status
    assert message in found_message
    await _is_served(decoder)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
async def test_random_bytes_get_a_status_of_ours(
    decoder: RunningDecoder, messages: list[bytes]
) -> None:
    """Whatever comes, the answer is a status with a reason that is not a bug of ours."""
    method = decoder.channel.stream_stream("/earvoice.api.v1.DecoderService/Decode")
    assert await _reason_of(Caller(method(iter(messages)))) in {
        None,
        "MALFORMED_MESSAGE",
        "INVALID_FIELD",
        "OUT_OF_ORDER",
        "LANGUAGE_NOT_SUPPORTED",
        "MODEL_MISMATCH",
        "NOT_IMPLEMENTED",
    }
    await _is_served(decoder)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    header=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("first_changed", "state_count", "dimension", "element_type"), INTS),
    ),
    fields=st.fixed_dictionaries(
        {
            "generation_id": INTS,
            "prefix": st.lists(INTS, max_size=3),
            "draft": st.lists(INTS, max_size=3),
            "max_new_tokens": INTS,
            "beam_size": INTS,
            "attention_layer": INTS,
            "attention_heads": st.lists(INTS, max_size=3),
            "prefix_attention": st.booleans(),
            "states_id": st.builds(types_pb2.StatesId, utterance=INTS, revision=INTS),
        }
    ),
)
async def test_fields_of_any_value_never_are_a_bug_of_ours(
    decoder: RunningDecoder, header: dict[str, Any], fields: dict[str, Any]
) -> None:
    """An open session given any numbers answers, or refuses with a reason."""

    async def write(caller: Caller) -> None:
        await caller.open()
        await caller.write(states=states_message(STATES, **header))
        await caller.write(generate=pb.Generate(**fields))
        await caller.close()

    assert await _reason_of(decoder.caller(), write) != "INTERNAL"
    await _is_served(decoder)


async def _reason_of(caller: Caller, write: Write | None = None) -> str | None:
    """Why a call failed; None if it did not, or if our own library gave up writing to it."""
    try:
        if write is not None:
            await write(caller)
        while await caller.call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return None if was_too_late(error) else facts_of(error)[1]
    return None


async def _until_error(caller: Caller, write: Write) -> None:
    await write(caller)
    while True:
        await caller.read()


async def _is_served(decoder: RunningDecoder) -> None:
    caller = decoder.caller()
    await caller.open()
    await caller.states(STATES)
    assert (await caller.generate(1, max_new_tokens=2)).steps
    await caller.close()
