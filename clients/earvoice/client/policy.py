"""The decision policies a stream can choose; what is None takes the model's calibrated value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal, get_args

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
        attention_heads: heads whose mean is read, from 1, each once; empty means all.
    """

    NAME: ClassVar[str] = "edatt"
    alpha: float | None = None
    lambda_states: int | None = None
    attention_layer: int | None = None
    normalization: Normalization | None = None
    allow_early_end: bool | None = None
    attention_heads: tuple[int, ...] = ()


@dataclass(frozen=True)
class AlignAtt:
    """AlignAtt (Papi 2023b): stop at the first token aligned with the newest audio.

    Attributes:
        frames: how near to the last state, in states, 1 to 256; larger waits longer.
        attention_layer: decoder layer whose cross-attention is read, from 1.
        attention_heads: heads whose mean is read, from 1, each once; empty means all.
        allow_early_end: commit an end of sentence found before the end of the source.
    """

    NAME: ClassVar[str] = "align_att"
    frames: int | None = None
    attention_layer: int | None = None
    attention_heads: tuple[int, ...] = ()
    allow_early_end: bool | None = None


@dataclass(frozen=True)
class LocalAgreement:
    """LA-n (Polák 2022, equation 2): commit what the last n hypotheses have in common.

    Attributes:
        n: hypotheses that must agree, 2 to 64.
    """

    NAME: ClassVar[str] = "local_agreement"
    n: int | None = None


@dataclass(frozen=True)
class SharedPrefix:
    """SP-n (Polák 2022, equation 3): commit what all hypotheses of the last n beams share.

    Attributes:
        n: segments that must agree, 1 to 8.
    """

    NAME: ClassVar[str] = "shared_prefix"
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


@dataclass(frozen=True)
class StridedWaitK:
    """Wait-k with stride and catch-up (Han 2020): token t after k + t - 1 - floor(c t) strides.

    Attributes:
        k: strides to wait, 1 to 64.
        stride_ms: audio in a stride, 40 to 4000.
        stride_words: complete source words of the CTC transcript in a stride, 1 to 16, in place
            of ``stride_ms``.
        catch_up: c, target to source length ratio minus one, -1 to 4.
    """

    NAME: ClassVar[str] = "strided_wait_k"
    k: int | None = None
    stride_ms: int | None = None
    stride_words: int | None = None
    catch_up: float | None = None


@dataclass(frozen=True)
class FrameSchedule:
    """The (k, s, N) schedule (Nguyen 2021), which also sets the stream's segments.

    Attributes:
        wait_frames: k, frames of 10 ms to wait, ``stride_frames`` to 2000; required.
        stride_frames: s, frames between writes, 1 to 500; required.
        tokens: N, most tokens a write, 1 to 16; required.
        max_length_ratio: most tokens of an utterance, as a share of its encoder states, 0.01 to 10.
    """

    NAME: ClassVar[str] = "frame_schedule"
    wait_frames: int | None = None
    stride_frames: int | None = None
    tokens: int | None = None
    max_length_ratio: float | None = None


@dataclass(frozen=True)
class Offline:
    """Commit nothing before an utterance has ended."""

    NAME: ClassVar[str] = "offline"


DecisionPolicy = (
    Edatt
    | AlignAtt
    | LocalAgreement
    | SharedPrefix
    | HoldN
    | WaitK
    | StridedWaitK
    | FrameSchedule
    | Offline
)
POLICIES: dict[str, type[DecisionPolicy]] = {
    policy.NAME: policy for policy in get_args(DecisionPolicy)
}


def choose_policy(name: str, **parameters: object) -> DecisionPolicy:
    """Return a policy by its name on the wire; hyphens may stand for underscores.

    Args:
        name: a key of ``POLICIES``.
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
            allowed = ", ".join(known) or "none"
            raise ValueError(
                f"{parameter} is no parameter of policy {policy.NAME}; allowed: {allowed}"
            )
    return policy(**parameters)  # type: ignore[arg-type]
