"""What a stream's choices must be to each other, at its start and after every change."""

from __future__ import annotations

from earvoice.policy.decisions.factory import PolicyParameters, ends_early, make_policy
from earvoice.policy.decisions.offline import OfflineParameters
from earvoice.policy.lag_scale import has_lag_parameter
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import InvalidFieldError


def check_consistency(options: StreamOptions) -> None:
    """Refuse choices that contradict each other.

    Raises:
        InvalidFieldError: an utterance would have to end within its first segment, one that
            history selection prolongs would be silent, or no parameter could hold the lag.
    """
    first_ms = options.initial_wait_ms + options.segment_ms
    endpointing = options.endpointing
    if endpointing is not None and endpointing.max_utterance_ms < first_ms:
        raise InvalidFieldError(
            "endpointing.max_utterance",
            f"{endpointing.max_utterance_ms} ms",
            f"{first_ms} ms (initial_wait and segment_duration) or more",
        )
    if options.history_selection is not None:
        _check_history(options.policy)
    if options.target_lag_ms is not None and not has_lag_parameter(options.policy):
        raise InvalidFieldError(
            "target_lag",
            f"{options.target_lag_ms} ms",
            f"unset with policy.{make_policy(options.policy).name}, which has no parameter to move",
        )


def _check_history(parameters: PolicyParameters) -> None:
    name = f"policy.{make_policy(parameters).name}"
    if isinstance(parameters, OfflineParameters):
        raise InvalidFieldError("history_selection", "set", f"unset with {name}, which keeps all")
    if ends_early(parameters):
        raise InvalidFieldError(
            "history_selection", "set", f"unset where {name} ends utterances before their audio"
        )
