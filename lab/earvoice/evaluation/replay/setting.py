"""One way to translate a recording: a policy, and the stream's choices that a replay knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, TypeVar, get_args

from earvoice.client.audio import AudioFormat
from earvoice.client.options import CommitUnit, Endpointing, TranslationOptions
from earvoice.policies import DecisionPolicy, format_policy, parse_policy
from earvoice.policies.registry import split_policy_text

AttentionView = Literal["one-layer", "mean-over-layers", "with-the-last-state"]
"""What an attention policy is shown: the layer and heads that it asks for; the mean over all layers
of those heads; or its layer with a state of no weight behind the last, so that a policy that drops
the last state drops nothing (both: Papi 2023, section 5)."""

Choice = TypeVar("Choice")

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class ReplaySetting:
    """One setting.

    Attributes:
        policy: and its parameters; what is None takes the model's calibrated value.
        segment_ms: duration of a segment; None takes the model's.
        initial_wait_ms: how much longer the first one is.
        beam_size: 1 is greedy; None takes the policy's default.
        uses_drafts: whether the computation counted is that of a decoder that verifies drafts.
        commit_unit: what is committed at once.
        target_lag_ms: word lag that the session holds by moving the policy's parameter.
    """

    policy: DecisionPolicy
    segment_ms: int | None = None
    initial_wait_ms: int | None = None
    beam_size: int | None = None
    attention: AttentionView = "one-layer"
    uses_drafts: bool = True
    uses_guards: bool = True
    commit_unit: CommitUnit = "word"
    target_lag_ms: int | None = None

    @property
    def name(self) -> str:
        """The text that ``parse_settings`` reads back; name of the setting's folder."""
        given = {
            "segment": self.segment_ms,
            "wait": self.initial_wait_ms or None,
            "beam": self.beam_size,
            "attention": None if self.attention == "one-layer" else self.attention,
            "drafts": None if self.uses_drafts else "false",
            "guards": None if self.uses_guards else "false",
            "commit": None if self.commit_unit == "word" else self.commit_unit,
            "lag": self.target_lag_ms,
        }
        stream = ",".join(f"{key}={value}" for key, value in given.items() if value is not None)
        return f"{format_policy(self.policy)}@{stream}" if stream else format_policy(self.policy)

    def options(self, target_language: str, sample_rate_hertz: int) -> TranslationOptions:
        """Return what a client would ask for, with the shortest samples there are."""
        return TranslationOptions(
            target_languages=(target_language,),
            audio=AudioFormat("mulaw", sample_rate_hertz, 1),
            policy=self.policy,
            segment_ms=self.segment_ms,
            initial_wait_ms=self.initial_wait_ms,
            catch_up="every-segment",
            endpointing=Endpointing(disabled=True),
            disable_guards=not self.uses_guards,
            commit_unit=self.commit_unit,
            beam_size=self.beam_size,
            target_lag_ms=self.target_lag_ms,
        )

    def applied_to(self, base: TranslationOptions) -> TranslationOptions:
        """Return options of a live session with what the setting says; what it leaves open stays.

        What a replay alone can do, ``attention`` and ``uses_drafts``, is left out.
        """
        given = {
            "segment_ms": self.segment_ms,
            "initial_wait_ms": self.initial_wait_ms,
            "beam_size": self.beam_size,
            "disable_guards": None if self.uses_guards else True,
            "commit_unit": None if self.commit_unit == "word" else self.commit_unit,
            "target_lag_ms": self.target_lag_ms,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return replace(base, policy=self.policy, **changes)


def parse_settings(text: str) -> Iterator[ReplaySetting]:
    """Yield the settings that a text stands for.

    Args:
        text: ``POLICY:PARAMETER=VALUE,...@KEY=VALUE,...``. After ``@`` stand ``segment`` and
            ``wait`` and ``lag`` in ms, ``beam``, ``attention``, ``drafts``, ``guards`` and
            ``commit``. A value may be several, divided by ``/``: each is a setting.

    Raises:
        ValueError: no such policy, parameter or key, or no value of its kind.
    """
    name, rest = split_policy_text(text)
    parameters, _, stream_text = rest.partition("@")
    policies = _alternatives(parameters)
    streams = _alternatives(stream_text)
    for policy, stream in product(policies, streams):
        joined = ",".join(f"{key}={value}" for key, value in policy)
        yield _setting(parse_policy(f"{name}:{joined}" if joined else name), dict(stream))


def _alternatives(text: str) -> list[tuple[tuple[str, str], ...]]:
    """Return every choice of one value for each key."""
    keys: list[list[tuple[str, str]]] = []
    for assignment in filter(None, text.split(",")):
        key, equals, values = assignment.partition("=")
        if not equals:
            raise ValueError(f"{assignment!r} is not KEY=VALUE")
        keys.append([(key.strip(), value.strip()) for value in values.split("/")])
    return list(product(*keys))


def _setting(policy: DecisionPolicy, stream: dict[str, str]) -> ReplaySetting:
    known = ("segment", "wait", "beam", "attention", "drafts", "guards", "commit", "lag")
    for key in stream:
        if key not in known:
            raise ValueError(f"{key} after @ is not known; known: {', '.join(known)}")
    views: dict[str, AttentionView] = {view: view for view in get_args(AttentionView)}
    units: dict[str, CommitUnit] = {unit: unit for unit in get_args(CommitUnit)}
    return ReplaySetting(
        policy,
        _whole_number(stream, "segment"),
        _whole_number(stream, "wait"),
        _whole_number(stream, "beam"),
        _choice(stream, "attention", views, "one-layer"),
        _choice(stream, "drafts", _FLAGS, "true"),
        _choice(stream, "guards", _FLAGS, "true"),
        _choice(stream, "commit", units, "word"),
        _whole_number(stream, "lag"),
    )


def _whole_number(stream: dict[str, str], key: str) -> int | None:
    if key not in stream:
        return None
    try:
        return int(stream[key])
    except ValueError as error:
        raise ValueError(f"{key} = {stream[key]!r} is not a whole number") from error


def _choice(
    stream: dict[str, str], key: str, choices: Mapping[str, Choice], default: str
) -> Choice:
    text = stream.get(key, default)
    if text not in choices:
        raise ValueError(f"{key} = {text!r}; allowed: {', '.join(choices)}")
    return choices[text]
