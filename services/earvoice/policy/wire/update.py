"""A change in mid-stream: checked against what the session does, all at once."""

from __future__ import annotations

from dataclasses import replace

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.factory import required_segment
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.consistency import check_consistency
from earvoice.policy.wire.decision_policy import policy_parameters
from earvoice.policy.wire.decoding import (
    attention_of,
    checked_beam_size,
    checked_initial_wait_ms,
    checked_segment_ms,
)
from earvoice.policy.wire.model_fit import check_model_fit
from earvoice.runtime.errors import InvalidFieldError


def updated_options(
    options: StreamOptions, update: public_pb.StreamingUpdate, model: types_pb2.ModelDescription
) -> StreamOptions:
    """Return a session's options after a change; what it leaves unset stays as it was.

    Raises:
        InvalidFieldError: a value is not allowed, does not go with the others, or none is set.
    """
    if not update.ListFields():
        raise InvalidFieldError("update", "nothing", "policy, segment_duration or beam_size")
    parameters = options.policy
    if update.HasField("policy"):
        parameters = policy_parameters(update.policy, model)
    duration = update.segment_duration if update.HasField("segment_duration") else None
    segment_ms, wait_ms = options.segment_ms, options.initial_wait_ms
    if required_segment(options.policy) is not None:
        # What one policy dictated may be out of all bounds for the next.
        segment_ms, wait_ms = model.default_segment_ms, 0
    layer, heads = attention_of(parameters, model)
    updated = replace(
        options,
        policy=parameters,
        attention_layer=layer,
        attention_heads=heads,
        beam_size=checked_beam_size(update.beam_size, parameters, options.beam_size),
        segment_ms=checked_segment_ms(duration, parameters, segment_ms),
        initial_wait_ms=checked_initial_wait_ms(None, parameters, wait_ms),
    )
    check_consistency(updated)
    check_model_fit(updated, model)
    return updated
