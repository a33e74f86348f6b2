"""How a stream is cut and decoded: what the policy asks for, what the client asks for, agreed."""

from __future__ import annotations

from google.protobuf import duration_pb2

from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.factory import (
    PolicyParameters,
    attention_choice,
    make_policy,
    required_segment,
)
from earvoice.policy.wire.check import check_range, duration_ms
from earvoice.runtime.errors import InvalidFieldError

Model = types_pb2.ModelDescription

MIN_SEGMENT_MS = 200
MAX_SEGMENT_MS = 10_000
MAX_INITIAL_WAIT_MS = 10_000
MAX_BEAM_SIZE = 16
WHOLE_BEAM_SIZE = 5
"""The beam of a policy that reads all of it and was given no other, as in the papers."""


def checked_segment_ms(
    given: duration_pb2.Duration | None, parameters: PolicyParameters, default_ms: int
) -> int:
    """Return the duration of the segments.

    Args:
        given: the client's choice; None for none.
        parameters: of the policy, which may dictate it.
        default_ms: when neither says anything.

    Raises:
        InvalidFieldError: the choice is out of range, or not what the policy dictates.
    """
    required = required_segment(parameters)
    if required is not None:
        return _dictated("segment_duration", given, required[0], parameters)
    if given is None:
        return default_ms
    return duration_ms("segment_duration", given, MIN_SEGMENT_MS, MAX_SEGMENT_MS)


def checked_initial_wait_ms(
    given: duration_pb2.Duration | None, parameters: PolicyParameters, default_ms: int
) -> int:
    """Return by how much the first segment of an utterance is longer.

    Args:
        given: the client's choice; None for none.
        parameters: of the policy, which may dictate it.
        default_ms: when neither says anything.

    Raises:
        InvalidFieldError: the choice is out of range, or not what the policy dictates.
    """
    required = required_segment(parameters)
    if required is not None:
        return _dictated("initial_wait", given, required[1], parameters)
    if given is None:
        return default_ms
    return duration_ms("initial_wait", given, 0, MAX_INITIAL_WAIT_MS)


def checked_beam_size(given: int, parameters: PolicyParameters, default: int) -> int:
    """Return the beam size.

    Args:
        given: the client's choice; 0 for none.
        parameters: of the policy, which may read the whole beam.
        default: when nothing is given; a policy that reads the beam gets 5 instead of 1.

    Raises:
        InvalidFieldError: the choice is out of range, or too small for the policy.
    """
    policy = make_policy(parameters)
    if not given:
        return WHOLE_BEAM_SIZE if policy.reads_beam and default == 1 else default
    if policy.reads_beam and given == 1:
        raise InvalidFieldError(
            "beam_size", given, f"2 to {MAX_BEAM_SIZE} with policy.{policy.name}, or unset"
        )
    return check_range("beam_size", given, 1, MAX_BEAM_SIZE)


def attention_of(parameters: PolicyParameters, model: Model) -> tuple[int, tuple[int, ...]]:
    """Return the decoder layer to read, the model's where the policy has none, and its heads."""
    layer, heads = attention_choice(parameters)
    return layer or model.default_attention_layer, heads


def _dictated(
    field: str,
    given: duration_pb2.Duration | None,
    required_ms: int,
    parameters: PolicyParameters,
) -> int:
    if given is not None and given.ToMilliseconds() != required_ms:
        name = make_policy(parameters).name
        raise InvalidFieldError(
            field,
            f"{given.ToMilliseconds()} ms",
            f"{required_ms} ms, which policy.{name} dictates, or unset",
        )
    return required_ms
