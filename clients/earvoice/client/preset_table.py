"""The presets: every setting that the papers report, as data."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from itertools import product
from typing import TYPE_CHECKING

from earvoice.client.policy import (
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    WaitK,
    WordDetection,
)
from earvoice.client.policy_text import parse_parameters
from earvoice.client.preset import Preset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from earvoice.client.policy import DecisionPolicy

_BEAM_SIZE = 5
_ALPHAS = (0.6, 0.4, 0.2, 0.1, 0.05, 0.03)
_ALIGN_ATT_FRAMES = (2, 4, 8)
_WAITS = (3, 5, 7, 9, 11)
_DETECTIONS: tuple[WordDetection, ...] = ("fixed", "adaptive")
_WORD_MS = 280
_RELEASED_WORD_MS = 320
_EDATT_SEGMENT_MS = 800
_ALIGN_ATT_SEGMENT_MS = 1000
_CHUNKS_MS = (250, 500, 1000, 2000)
_FIRST_CHUNK_MS = 2000
_SUBMISSIONS_MS = {
    "en-de": (500, 1000, 2500),
    "en-ja": (1000, 2400, 3000),
    "en-zh": (800, 1500, 2500),
}
_REGIMES = ("low", "medium", "high")
_STRIDES = ((3, 300), (4, 350), (3, 400), (4, 800), (5, 800))


_AgreementFamily = tuple[str, type[LocalAgreement | HoldN | SharedPrefix], tuple[int, ...]]


def _as_released(preset: Preset, policy: DecisionPolicy) -> Preset:
    """Return a preset as the released agent of its paper runs it."""
    return replace(
        preset,
        name=f"{preset.name}-released",
        summary=f"{preset.summary}, as the released agent: by tokens, no guards",
        policy=policy,
        beam_size=_BEAM_SIZE,
        commit_unit="token",
        is_released_code=True,
    )


def _papi_2022() -> Iterator[Preset]:
    for k, detection in product(_WAITS, _DETECTIONS):
        preset = Preset(
            f"papi-2022-wait-{k}-{detection}",
            f"wait-{k}, {detection} word detection",
            WaitK(k=k, detection=detection),
            segment_ms=_WORD_MS,
            beam_size=1,
        )
        yield preset
        # The released agent counts words by CTC only.
        if detection == "adaptive":
            policy = WaitK(k=k, detection=detection, end_while_reading="commit")
            yield replace(_as_released(preset, policy), segment_ms=_RELEASED_WORD_MS)
    yield Preset("papi-2022-offline-greedy", "offline", Offline(), beam_size=1)
    yield Preset("papi-2022-offline-beam", "offline", Offline(), beam_size=_BEAM_SIZE)


def _papi_2023() -> Iterator[Preset]:
    for alpha in _ALPHAS:
        policy = Edatt(alpha=alpha, lambda_states=2, normalization="l2")
        preset = Preset(
            f"papi-2023-edatt-{alpha}",
            f"EDAtt, alpha {alpha}, lambda 2",
            policy,
            segment_ms=_EDATT_SEGMENT_MS,
            beam_size=_BEAM_SIZE,
        )
        yield preset
        yield _as_released(preset, replace(policy, allow_early_end=True))
    agreement = Preset(
        "papi-2023-la",
        "local agreement with a memory of one hypothesis: LA-2",
        LocalAgreement(n=2),
        segment_ms=_EDATT_SEGMENT_MS,
        beam_size=_BEAM_SIZE,
    )
    yield agreement
    yield _as_released(agreement, agreement.policy)


def _papi_2023b() -> Iterator[Preset]:
    for frames in _ALIGN_ATT_FRAMES:
        preset = Preset(
            f"papi-2023b-alignatt-{frames}",
            f"AlignAtt, f {frames}",
            AlignAtt(frames=frames),
            segment_ms=_ALIGN_ATT_SEGMENT_MS,
            beam_size=_BEAM_SIZE,
        )
        yield preset
        yield _as_released(preset, preset.policy)


def _polak_2022() -> Iterator[Preset]:
    families: dict[str, _AgreementFamily] = {
        "la": ("LA", LocalAgreement, (2, 3, 4)),
        "hold": ("Hold", HoldN, (3, 6, 12)),
        "sp": ("SP", SharedPrefix, (1, 2)),
    }
    for family, (title, policy, numbers) in families.items():
        for n, chunk_ms in product(numbers, _CHUNKS_MS):
            yield Preset(
                f"polak-2022-{family}-{n}-{chunk_ms}",
                f"{title}-{n}, chunks of {chunk_ms} ms",
                policy(n=n),
                segment_ms=chunk_ms,
                beam_size=_BEAM_SIZE,
            )
    for chunk_ms in _CHUNKS_MS[:-1]:
        yield Preset(
            f"polak-2022-la-2-{chunk_ms}-wait",
            f"LA-2, chunks of {chunk_ms} ms, the first of 2 s",
            LocalAgreement(n=2),
            segment_ms=chunk_ms,
            initial_wait_ms=_FIRST_CHUNK_MS - chunk_ms,
            beam_size=_BEAM_SIZE,
        )
    for pair, chunks_ms in _SUBMISSIONS_MS.items():
        for regime, chunk_ms in zip(_REGIMES, chunks_ms, strict=True):
            yield Preset(
                f"polak-2022-submission-{pair}-{regime}",
                f"IWSLT 2022, {pair}, {regime} latency: LA-2, chunks of {chunk_ms} ms",
                LocalAgreement(n=2),
                segment_ms=chunk_ms,
                beam_size=_BEAM_SIZE,
            )


def _nguyen_2021() -> Iterator[Preset]:
    for k, s, n in product((100, 200), (10, 20), (1, 2, 3)):
        yield Preset(
            f"nguyen-2021-k{k}-s{s}-n{n}",
            f"at most {n} tokens every {s * 10} ms after {k * 10} ms",
            FrameSchedule(wait_frames=k, stride_frames=s, tokens=n, max_length_ratio=1.0),
            beam_size=1,
        )


def _han_2020() -> Iterator[Preset]:
    # Models were also decoded faster than they were trained: with k - 1, or s - 100.
    faster = {pair for k, s in _STRIDES for pair in ((k - 1, s), (k, s - 100))}
    for k, stride_ms in sorted(faster.union(_STRIDES)):
        trained = "" if (k, stride_ms) in _STRIDES else ", decoded faster than trained"
        yield Preset(
            f"han-2020-wait-{k}-{stride_ms}",
            f"wait-{k}, a token every {stride_ms} ms{trained}",
            StridedWaitK(k=k, stride_ms=stride_ms, catch_up=0.0),
            segment_ms=stride_ms,
            beam_size=1,
        )


PRESETS = (
    *_papi_2022(),
    *_papi_2023(),
    *_papi_2023b(),
    *_polak_2022(),
    *_nguyen_2021(),
    *_han_2020(),
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
"""What a preset's ``paper`` stands for."""


def find_preset(text: str) -> Preset:
    """Return a preset by its name, with other parameters of its policy if any are given.

    Args:
        text: ``NAME`` or ``NAME:PARAMETER=VALUE,...``, such as
            ``papi-2023-edatt-0.2:attention_layer=4``.

    Raises:
        ValueError: no such preset or parameter, or no value of its kind.
    """
    name, _, assignments = text.partition(":")
    found = next((preset for preset in PRESETS if preset.name == name), None)
    if found is None:
        names = [preset.name for preset in PRESETS]
        near = ", ".join(get_close_matches(name, names)) or f"{names[0]} and others"
        raise ValueError(f"preset = {name!r} is not known; nearest: {near}")
    return found.with_parameters(parse_parameters(found.policy.NAME, assignments))
