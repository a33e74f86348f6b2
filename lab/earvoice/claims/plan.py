"""The settings that the claims need; those that claims share are run once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from earvoice.client.policy import (
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    WaitK,
    WordDetection,
)
from earvoice.evaluation.replay.setting import AttentionView, ReplaySetting

ATTENTION_SEGMENT_MS = 800
"""Papi 2023."""
WAIT_K_SEGMENT_MS = 250
"""Papi 2022 checks every 280 ms; here it shares the revisions of local agreement."""
FIRST_SEGMENT_MS = 2000
"""With an initial wait (Polák 2022, section 3.4: the first chunk is prolonged to 2 s)."""

ALPHAS = (0.6, 0.4, 0.2, 0.1, 0.05, 0.03)
STUDY_ALPHAS = (0.4, 0.2, 0.1)
WAITS = (3, 5, 7, 9, 11)
CHUNKS_MS = (250, 500, 1000, 2000)
LAMBDAS = (1, 2, 4, 6, 8)
HOLDS = (3, 6, 12)
FRAMES = (1, 2, 4, 8)
SCHEDULES = tuple(product((100, 200), (10, 20), (1, 2, 3)))
BEAM_SIZE = 5
TARGET_LAGS_MS = (1500, 2000, 3000)
MAIN_GRIDS_MS = (CHUNKS_MS[0], ATTENTION_SEGMENT_MS)
"""Segments of all settings but the schedules: every boundary lies on one of them."""
SCHEDULE_GRIDS_MS = (100,)
"""Every k and s is a multiple of it."""
SNAPSHOT_GRIDS_MS = (500, ATTENTION_SEGMENT_MS)


def edatt(
    alpha: float, view: AttentionView = "one-layer", *, uses_drafts: bool = True, **more: Any
) -> ReplaySetting:
    """Return EDAtt; parameters that are left out are the model's."""
    return ReplaySetting(
        Edatt(alpha=alpha, **more), ATTENTION_SEGMENT_MS, attention=view, uses_drafts=uses_drafts
    )


def align_att(frames: int) -> ReplaySetting:
    """Return AlignAtt."""
    return ReplaySetting(AlignAtt(frames=frames), ATTENTION_SEGMENT_MS)


def wait_k(k: int, detection: WordDetection) -> ReplaySetting:
    """Return wait-k."""
    return ReplaySetting(WaitK(k=k, detection=detection), WAIT_K_SEGMENT_MS)


def agreement(n: int, segment_ms: int, **stream: Any) -> ReplaySetting:
    """Return LA-n."""
    return ReplaySetting(LocalAgreement(n=n), segment_ms, **stream)


def waited_agreement(n: int, segment_ms: int) -> ReplaySetting:
    """Return LA-n with an initial wait."""
    return agreement(n, segment_ms, initial_wait_ms=FIRST_SEGMENT_MS - segment_ms)


def hold(n: int, segment_ms: int) -> ReplaySetting:
    """Return Hold-n."""
    return ReplaySetting(HoldN(n=n), segment_ms)


def shared_prefix(n: int, segment_ms: int) -> ReplaySetting:
    """Return SP-n."""
    return ReplaySetting(SharedPrefix(n=n), segment_ms, beam_size=BEAM_SIZE)


def schedule(wait_frames: int, stride_frames: int, tokens: int) -> ReplaySetting:
    """Return a (k, s, N) schedule; segment and initial wait follow from k and s."""
    return ReplaySetting(
        FrameSchedule(wait_frames=wait_frames, stride_frames=stride_frames, tokens=tokens)
    )


def offline(beam_size: int | None = None) -> ReplaySetting:
    """Return translation at the end."""
    return ReplaySetting(Offline(), CHUNKS_MS[-1], beam_size=beam_size)


EDATT = tuple(edatt(alpha) for alpha in ALPHAS)
ALIGN_ATT = tuple(align_att(frames) for frames in FRAMES)
AGREEMENT = {n: tuple(agreement(n, chunk_ms) for chunk_ms in CHUNKS_MS) for n in (2, 3, 4)}
AGREEMENT_WAITED = tuple(waited_agreement(2, chunk_ms) for chunk_ms in CHUNKS_MS[:3])
AGREEMENT_BEAM = tuple(agreement(2, chunk_ms, beam_size=BEAM_SIZE) for chunk_ms in CHUNKS_MS[1:])
SHARED_PREFIX = {n: tuple(shared_prefix(n, chunk_ms) for chunk_ms in CHUNKS_MS[1:]) for n in (1, 2)}
HOLD = {n: tuple(hold(n, chunk_ms) for chunk_ms in CHUNKS_MS[:3]) for n in HOLDS}
DETECTIONS: tuple[WordDetection, ...] = ("adaptive", "fixed")
WAIT_K = {detection: tuple(wait_k(k, detection) for k in WAITS) for detection in DETECTIONS}
SCHEDULE = tuple(schedule(*triple) for triple in SCHEDULES)
OFFLINE = (offline(), offline(BEAM_SIZE))
LAMBDA = {
    states: tuple(edatt(alpha, lambda_states=states) for alpha in STUDY_ALPHAS)
    for states in LAMBDAS
}
WITH_LAST_STATE = tuple(edatt(alpha, "with-the-last-state") for alpha in STUDY_ALPHAS)
MEAN_OF_LAYERS = tuple(edatt(alpha, "mean-over-layers") for alpha in STUDY_ALPHAS)


def layer(number: int) -> tuple[ReplaySetting, ...]:
    """Return EDAtt on one decoder layer, counted from 1."""
    return tuple(edatt(alpha, attention_layer=number) for alpha in STUDY_ALPHAS)


def head(number: int) -> tuple[ReplaySetting, ...]:
    """Return EDAtt on one head of the model's layer, counted from 1."""
    return tuple(edatt(alpha, attention_heads=(number,)) for alpha in STUDY_ALPHAS)


EDATT_UNDRAFTED = tuple(edatt(alpha, uses_drafts=False) for alpha in ALPHAS)
AGREEMENT_UNDRAFTED = tuple(agreement(2, chunk_ms, uses_drafts=False) for chunk_ms in CHUNKS_MS)

LAG_HELD = {
    "EDAtt": tuple(
        ReplaySetting(Edatt(), ATTENTION_SEGMENT_MS, target_lag_ms=lag_ms)
        for lag_ms in TARGET_LAGS_MS
    ),
    "AlignAtt": tuple(
        ReplaySetting(AlignAtt(), ATTENTION_SEGMENT_MS, target_lag_ms=lag_ms)
        for lag_ms in TARGET_LAGS_MS
    ),
    "wait-k, adaptive": tuple(
        ReplaySetting(WaitK(detection="adaptive"), WAIT_K_SEGMENT_MS, target_lag_ms=lag_ms)
        for lag_ms in TARGET_LAGS_MS
    ),
    "Hold-n": tuple(
        ReplaySetting(HoldN(), CHUNKS_MS[1], target_lag_ms=lag_ms) for lag_ms in TARGET_LAGS_MS
    ),
}
"""A word lag is asked for and the policy's own parameter moves (no claim of a paper)."""

SNAPSHOT = (*EDATT[:4], *AGREEMENT[2][1:3], offline())
"""What each training snapshot is asked (claim 13)."""


@dataclass(frozen=True)
class Part:
    """Settings that are replayed from one recording.

    Attributes:
        name: of the recording's folder.
        grids_ms: segments that are recorded.
        settings: each once.
    """

    name: str
    grids_ms: tuple[int, ...]
    settings: tuple[ReplaySetting, ...]


def plan(layers: int, heads: int) -> tuple[ReplaySetting, ...]:
    """Return every setting once.

    Args:
        layers: of the model's decoder.
        heads: of each of them.
    """
    return (*main_part(layers, heads).settings, *SCHEDULE)


def main_part(layers: int, heads: int) -> Part:
    """Return everything but the schedules, which need a recording of many more revisions."""
    settings = chain(
        *(EDATT, AGREEMENT[2], WAIT_K["adaptive"], OFFLINE, ALIGN_ATT),
        *(WAIT_K["fixed"], AGREEMENT_WAITED, AGREEMENT[3], AGREEMENT[4]),
        *(HOLD[n] for n in HOLDS),
        *(WITH_LAST_STATE, *(LAMBDA[states] for states in LAMBDAS), MEAN_OF_LAYERS),
        *(layer(number + 1) for number in range(layers)),
        *(head(number + 1) for number in range(heads)),
        *(EDATT_UNDRAFTED, AGREEMENT_UNDRAFTED),
        *(SHARED_PREFIX[2], AGREEMENT_BEAM, SHARED_PREFIX[1]),
        *LAG_HELD.values(),
    )
    return Part("recording", MAIN_GRIDS_MS, tuple(dict.fromkeys(settings)))


SCHEDULE_PART = Part("recording-of-schedules", SCHEDULE_GRIDS_MS, SCHEDULE)
SNAPSHOT_PART = Part("recording", SNAPSHOT_GRIDS_MS, SNAPSHOT)
