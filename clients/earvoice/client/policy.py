"""The decision policies a stream can choose; what is None takes the model's calibrated value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

Normalization = Literal["l2", "l1"]
WordDetection = Literal["fixed", "adaptive"]
EndWhileReading = Literal["stop", "avoid", "commit"]


@dataclass(frozen=True)
class Edatt:
    """EDAtt (Papi 2023): stop at the first token that looks at the newest audio.

    Attributes:
        alpha: threshold, 0 to 1; larger speaks sooner.
        lambda_states: how many of the last states are added up, 1 to 64.
        attention_layer: decoder layer whose cross-attention is read, from 1.
        normalization: how a row is rescaled after its last state is dropped.
        allow_early_end: commit an end of sentence found before the end of the source.
    """

    NAME: ClassVar[str] = "edatt"
    alpha: float | None = None
    lambda_states: int | None = None
    attention_layer: int | None = None
    normalization: Normalization | None = None
    allow_early_end: bool | None = None


@dataclass(frozen=True)
class LocalAgreement:
    """LA-n (Polák 2022, equation 2): commit what the last n hypotheses have in common.

    Attributes:
        n: hypotheses that must agree, 2 to 8.
    """

    NAME: ClassVar[str] = "local_agreement"
    n: int | None = None


@dataclass(frozen=True)
class WaitK:
    """Wait-k (Ma 2019; Papi 2022): stay k words behind the source.

    Attributes:
        k: words to wait, 1 to 64.
        detection: how source words are counted: one every 280 ms, or from the CTC transcript.
        inclusive: write when heard >= written + k instead of heard > written + k.
        count_partial_word: whether a last, unfinished source word counts.
        end_while_reading: what to do with an end of sentence before the end of the source.
    """

    NAME: ClassVar[str] = "wait_k"
    k: int | None = None
    detection: WordDetection | None = None
    inclusive: bool | None = None
    count_partial_word: bool | None = None
    end_while_reading: EndWhileReading | None = None


@dataclass(frozen=True)
class HoldN:
    """Hold-n (Polák 2022, equation 1): hold back the last n tokens of the hypothesis.

    Attributes:
        n: tokens held back, 0 to 64.
    """

    NAME: ClassVar[str] = "hold_n"
    n: int | None = None


DecisionPolicy = Edatt | LocalAgreement | WaitK | HoldN
POLICIES: dict[str, type[DecisionPolicy]] = {
    policy.NAME: policy for policy in (Edatt, LocalAgreement, WaitK, HoldN)
}


def choose_policy(name: str, **parameters: object) -> DecisionPolicy:
    """Return a policy by its name on the wire; hyphens may stand for underscores.

    Args:
        name: ``edatt``, ``local_agreement``, ``wait_k`` or ``hold_n``.
        parameters: the policy's attributes.

    Raises:
        ValueError: no such policy, or it has no such parameter.
    """
    policy = POLICIES.get(name.replace("-", "_"))
    if policy is None:
        raise ValueError(f"policy = {name!r} is not allowed; allowed: {', '.join(POLICIES)}")
    known = [field.name for field in fields(policy)]
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"{parameter} is no parameter of policy {policy.NAME}; allowed: {', '.join(known)}"
            )
    return policy(**parameters)  # type: ignore[arg-type]
