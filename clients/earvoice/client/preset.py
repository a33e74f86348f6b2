"""The papers' settings, by name: rows of policies and streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, product

from earvoice.client.options import CommitUnit, Endpointing, TranslationOptions
from earvoice.policies import DecisionPolicy
from earvoice.policies.registry import parse_policy, with_parameters
from earvoice.runtime.parameter import (
    ParameterError,
    alternatives,
    parameters_of,
    parse_assignments,
)


@dataclass(frozen=True)
class Preset:
    """One setting of one paper; None takes the model's or the server's default.

    Attributes:
        policy: with the paper's parameters. The attention layer is always left to the model: the
            papers' "4 of 6" means nothing to a decoder of another depth.
        is_released_code: as in the papers' released agents: no guards, and utterances end only
            with the audio.
    """

    name: str
    summary: str
    policy: DecisionPolicy
    segment_ms: int | None = None
    initial_wait_ms: int | None = None
    beam_size: int | None = None
    commit_unit: CommitUnit | None = None
    is_released_code: bool = False

    @property
    def paper(self) -> str:
        """The paper's author and year, such as ``papi-2023``; the first part of the name."""
        author, year, *_ = self.name.split("-")
        return f"{author}-{year}"

    def with_parameters(self, parameters: Mapping[str, object]) -> Preset:
        return replace(self, policy=with_parameters(self.policy, parameters))

    def apply(self, options: TranslationOptions) -> TranslationOptions:
        applied = replace(
            options,
            policy=self.policy,
            segment_ms=self.segment_ms,
            initial_wait_ms=self.initial_wait_ms,
            beam_size=self.beam_size,
            commit_unit=self.commit_unit,
        )
        if not self.is_released_code:
            return applied
        return replace(applied, disable_guards=True, endpointing=Endpointing(disabled=True))


def _presets(
    name: str,
    summary: str,
    policy: str,
    segments_ms: tuple[int | None, ...] = (None,),
    beam_size: int = 5,
    first_ms: int | None = None,
    *,
    is_released_code: bool = False,
) -> Iterator[Preset]:
    """Yield presets that differ in a few values.

    Args:
        name, summary: with ``{parameter}`` and ``{segment_ms}`` where they differ.
        policy: as text; alternative values of a parameter are separated by ``/``.
    """
    policy_name, _, parameters = policy.partition(":")
    for chosen, segment_ms in product(alternatives(parameters), segments_ms):
        values = dict(part.split("=") for part in chosen.split(",") if part)
        values["segment_ms"] = str(segment_ms)
        own_name, own_summary = name.format(**values), summary.format(**values)
        wait_ms = first_ms - segment_ms if first_ms and segment_ms else None
        yield Preset(
            name=f"{own_name}-released" if is_released_code else own_name,
            summary=f"{own_summary}{_AS_RELEASED}" if is_released_code else own_summary,
            policy=parse_policy(f"{policy_name}:{chosen}"),
            segment_ms=segment_ms,
            initial_wait_ms=wait_ms,
            beam_size=beam_size,
            commit_unit="token" if is_released_code else None,
            is_released_code=is_released_code,
        )


def _with_released(
    name: str, summary: str, policy: str, segment_ms: int, further_parameters: str = ""
) -> Iterator[Preset]:
    """Yield presets, then those of the released agent, whose policy has further parameters."""
    yield from _presets(name, summary, policy, (segment_ms,))
    released = f"{policy}{further_parameters}"
    yield from _presets(name, summary, released, (segment_ms,), is_released_code=True)


_AS_RELEASED = ", as the released agent: by tokens, no guards"
_CHUNKS_MS = (250, 500, 1000, 2000)
_SUBMISSIONS_MS = {
    "en-de": (500, 1000, 2500),
    "en-ja": (1000, 2400, 3000),
    "en-zh": (800, 1500, 2500),
}
_STRIDES = ((3, 300), (4, 350), (3, 400), (4, 800), (5, 800))
# Models were also decoded faster than they were trained: with k - 1, or s - 100.
_FASTER_STRIDES = {pair for k, s in _STRIDES for pair in ((k - 1, s), (k, s - 100))}

_WAIT_K = ("papi-2022-wait-{k}-{detection}", "wait-{k}, {detection} word detection")

PRESETS = (
    *_presets(*_WAIT_K, "wait_k:k=3/5/7/9/11,detection=fixed/adaptive", (280,), 1),
    # The released agent counts words by CTC only.
    *_presets(
        *_WAIT_K,
        "wait_k:k=3/5/7/9/11,detection=adaptive,end_while_reading=commit",
        (320,),
        is_released_code=True,
    ),
    *_presets("papi-2022-offline-greedy", "offline", "offline", beam_size=1),
    *_presets("papi-2022-offline-beam", "offline", "offline"),
    *_with_released(
        "papi-2023-edatt-{alpha}",
        "EDAtt, alpha {alpha}, lambda 2",
        "edatt:alpha=0.6/0.4/0.2/0.1/0.05/0.03,lambda_states=2",
        800,
        ",allow_early_end=true",
    ),
    *_with_released(
        "papi-2023-la",
        "local agreement with a memory of one hypothesis: LA-2",
        "local_agreement:n=2",
        800,
    ),
    *_with_released(
        "papi-2023b-alignatt-{frames}", "AlignAtt, f {frames}", "align_att:frames=2/4/8", 1000
    ),
    *_presets(
        "polak-2022-la-{n}-{segment_ms}",
        "LA-{n}, chunks of {segment_ms} ms",
        "local_agreement:n=2/3/4",
        _CHUNKS_MS,
    ),
    *_presets(
        "polak-2022-hold-{n}-{segment_ms}",
        "Hold-{n}, chunks of {segment_ms} ms",
        "hold_n:n=3/6/12",
        _CHUNKS_MS,
    ),
    *_presets(
        "polak-2022-sp-{n}-{segment_ms}",
        "SP-{n}, chunks of {segment_ms} ms",
        "shared_prefix:n=1/2",
        _CHUNKS_MS,
    ),
    *_presets(
        "polak-2022-la-{n}-{segment_ms}-wait",
        "LA-{n}, chunks of {segment_ms} ms, the first of 2 s",
        "local_agreement:n=2",
        _CHUNKS_MS[:-1],
        first_ms=2000,
    ),
    *chain.from_iterable(
        _presets(
            f"polak-2022-submission-{pair}-{regime}",
            f"IWSLT 2022, {pair}, {regime} latency: LA-2, chunks of {segment_ms} ms",
            "local_agreement:n=2",
            (segment_ms,),
        )
        for pair, chunks_ms in _SUBMISSIONS_MS.items()
        for regime, segment_ms in zip(("low", "medium", "high"), chunks_ms, strict=True)
    ),
    *_presets(
        "nguyen-2021-k{wait_frames}-s{stride_frames}-n{tokens}",
        # Frames of 10 ms.
        "at most {tokens} tokens every {stride_frames}0 ms after {wait_frames}0 ms",
        "frame_schedule:wait_frames=100/200,stride_frames=10/20,tokens=1/2/3",
        beam_size=1,
    ),
    *chain.from_iterable(
        _presets(
            "han-2020-wait-{k}-{stride_ms}",
            "wait-{k}, a token every {stride_ms} ms"
            + ("" if (k, stride_ms) in _STRIDES else ", decoded faster than trained"),
            f"strided_wait_k:k={k},stride_ms={stride_ms}",
            (stride_ms,),
            1,
        )
        for k, stride_ms in sorted(_FASTER_STRIDES.union(_STRIDES))
    ),
)
"""All of them, paper by paper."""

PAPERS = {
    "papi-2022": "Papi 2022: Does Simultaneous Speech Translation need Simultaneous Models?",
    "papi-2023": "Papi 2023: Attention as a Guide for Simultaneous Speech Translation",
    "papi-2023b": "Papi 2023b: AlignAtt",
    "polak-2022": "Polák 2022: CUNI-KIT System for Simultaneous Speech Translation, IWSLT 2022",
    "nguyen-2021": "Nguyen 2021: End-to-End Simultaneous Speech Translation Decoding Strategies",
    "han-2020": "Han 2020: End-to-End Simultaneous Translation System for IWSLT 2020",
}
"""The papers' titles, by a preset's ``paper``."""


def find_preset(text: str) -> Preset:
    """Return a preset by its name, with other parameters of its policy if any are given.

    Args:
        text: ``NAME`` or ``NAME:PARAMETER=VALUE,...``, such as
            ``papi-2023-edatt-0.2:attention_layer=4``.
    """
    name, _, assignments = text.partition(":")
    found = next((preset for preset in PRESETS if preset.name == name), None)
    if found is None:
        names = [preset.name for preset in PRESETS]
        near = ", ".join(get_close_matches(name, names)) or f"{names[0]} and others"
        raise ValueError(f"preset = {name!r} is not known; nearest: {near}")
    try:
        return found.with_parameters(
            parse_assignments(parameters_of(type(found.policy)), assignments)
        )
    except ParameterError as error:
        raise error.within(f"{name}:") from None
