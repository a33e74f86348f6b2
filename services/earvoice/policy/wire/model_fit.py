"""What a stream asks of a model that the model cannot give."""

from __future__ import annotations

from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.factory import PolicyParameters, make_policy
from earvoice.policy.decisions.strided_wait_k import StridedWaitKParameters
from earvoice.policy.decisions.wait_k import WaitKParameters
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import InvalidFieldError


def check_model_fit(options: StreamOptions, model: types_pb2.ModelDescription) -> None:
    """Refuse what the model cannot do.

    Raises:
        InvalidFieldError: source words or a transcript of a model without a CTC head, or a beam of
            one that decodes greedily alone.
    """
    policy = f"policy.{make_policy(options.policy).name}"
    without_ctc = f"model {model.name!r} has no CTC head, which source words are read from"
    if model.lacks_ctc and isinstance(options.policy, WaitKParameters):
        if options.policy.detection == "adaptive":
            raise InvalidFieldError(f"{policy}.detection", "adaptive", f"fixed: {without_ctc}")
    elif model.lacks_ctc and _counts_source_words(options.policy):
        raise InvalidFieldError(f"{policy}.stride_words", "set", f"a time: {without_ctc}")
    if model.lacks_ctc and options.sends_source_transcript:
        raise InvalidFieldError("enable_source_transcript", "true", f"false: {without_ctc}")
    if model.greedy_only and options.beam_size > 1:
        raise InvalidFieldError(
            "beam_size",
            f"{options.beam_size} for {policy}",
            f"1: model {model.name!r} decodes greedily alone",
        )


def _counts_source_words(parameters: PolicyParameters) -> bool:
    return isinstance(parameters, StridedWaitKParameters) and parameters.stride_words is not None
