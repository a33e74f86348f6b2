"""The settings that the claims need; those that claims share are run once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
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
STUDY_ALPHAS = (0.4, 0.1)
WAITS = (3, 7, 11)
CHUNKS_MS = (250, 500, 1000, 2000)
MIDDLE_CHUNKS_MS = CHUNKS_MS[1:3]
LONG_CHUNKS_MS = (4000, 8000)
EARLY_CHUNKS_MS = (*CHUNKS_MS[1:], *LONG_CHUNKS_MS)
"""Of policies that release early: only in long chunks are they as late as SP-2."""
LAMBDAS = (1, 2, 4, 8)
HOLD_TOKENS = 6
FRAMES = (1, 2, 4, 8)
SCHEDULE_WAITS_FRAMES = (100, 200)
SCHEDULE_STRIDES_FRAMES = (10, 20)
SCHEDULE_TOKENS = (1, 2, 3)
"""Twelve triples with these, as in Nguyen 2021."""
FRAME_MS = 10
BEAM_SIZE = 5
TARGET_LAGS_MS = (1500, 2000, 3000)
MAIN_GRIDS_MS = (CHUNKS_MS[0], ATTENTION_SEGMENT_MS)
"""Segments of all settings but the schedules: every boundary lies on one of them."""
SCHEDULE_GRID_MS = SCHEDULE_STRIDES_FRAMES[0] * FRAME_MS
"""Of the schedules; they are recorded by themselves, for revisions this close are many."""
TRAINING_SEGMENT_MS = 1000
"""Of settings that compare trainings: there are many checkpoints, and few revisions are cheap."""
TRAINING_ALPHAS = (0.6, 0.2, 0.05)


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


def hold(n: int, segment_ms: int, **stream: Any) -> ReplaySetting:
    """Return Hold-n."""
    return ReplaySetting(HoldN(n=n), segment_ms, **stream)


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
AGREEMENT = {2: tuple(agreement(2, chunk_ms) for chunk_ms in CHUNKS_MS)} | {
    n: tuple(agreement(n, chunk_ms) for chunk_ms in MIDDLE_CHUNKS_MS) for n in (3, 4)
}
AGREEMENT_WAITED = tuple(waited_agreement(2, chunk_ms) for chunk_ms in CHUNKS_MS[:3])
AGREEMENT_BEAM = tuple(agreement(2, chunk_ms, beam_size=BEAM_SIZE) for chunk_ms in CHUNKS_MS[1:])
SHARED_PREFIX = {
    1: tuple(shared_prefix(1, chunk_ms) for chunk_ms in EARLY_CHUNKS_MS),
    2: tuple(shared_prefix(2, chunk_ms) for chunk_ms in CHUNKS_MS[1:]),
}
HOLD = tuple(hold(HOLD_TOKENS, chunk_ms) for chunk_ms in EARLY_CHUNKS_MS)
HOLD_BEAM = tuple(hold(HOLD_TOKENS, chunk_ms, beam_size=BEAM_SIZE) for chunk_ms in LONG_CHUNKS_MS)
DETECTIONS: tuple[WordDetection, ...] = ("adaptive", "fixed")
WAIT_K = {detection: tuple(wait_k(k, detection) for k in WAITS) for detection in DETECTIONS}
SCHEDULE = {
    tokens: tuple(
        schedule(wait_frames, stride_frames, tokens)
        for wait_frames in SCHEDULE_WAITS_FRAMES
        for stride_frames in SCHEDULE_STRIDES_FRAMES
    )
    for tokens in SCHEDULE_TOKENS
}
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
}
"""A word lag is asked for and the policy's own parameter moves (no claim of a paper)."""

TRAINING_CURVES = {
    "EDAtt": tuple(
        replace(edatt(alpha), segment_ms=TRAINING_SEGMENT_MS) for alpha in TRAINING_ALPHAS
    ),
    "LA-2": (agreement(2, TRAINING_SEGMENT_MS),),
    "wait-k, adaptive": tuple(
        replace(wait_k(k, "adaptive"), segment_ms=TRAINING_SEGMENT_MS) for k in WAITS
    ),
}
TRAINING_ONLINE = tuple(chain(*TRAINING_CURVES.values()))
TRAINING = (offline(), *TRAINING_ONLINE)
"""What each checkpoint is asked whose training is compared (claims 13 to 15)."""
TRUNCATION_CURVES = {
    "EDAtt": TRAINING_CURVES["EDAtt"],
    "AlignAtt": tuple(
        replace(align_att(frames), segment_ms=TRAINING_SEGMENT_MS) for frames in FRAMES[1:]
    ),
    "LA-2": tuple(agreement(2, chunks * TRAINING_SEGMENT_MS) for chunks in (1, 2)),
}
TRUNCATION = tuple(dict.fromkeys((*TRAINING, *chain(*TRUNCATION_CURVES.values()))))
"""With what is asked about truncated inputs in training (no claim of a paper)."""


@dataclass(frozen=True)
class Part:
    """Settings that are replayed from one recording.

    Attributes:
        recording: its folder.
        grids_ms: segments that are recorded.
        settings: what is replayed.
    """

    recording: str
    grids_ms: tuple[int, ...]
    settings: tuple[ReplaySetting, ...]

    @property
    def recorded_settings(self) -> tuple[ReplaySetting, ...]:
        """Those whose boundaries are all recorded, each once."""
        return tuple(filter(self._is_recorded, dict.fromkeys(self.settings)))

    def _is_recorded(self, setting: ReplaySetting) -> bool:
        if isinstance(setting.policy, FrameSchedule):
            frames = setting.policy.stride_frames or 0, setting.policy.wait_frames or 0
            durations_ms = frames[0] * FRAME_MS, frames[1] * FRAME_MS
        else:
            durations_ms = setting.segment_ms or 0, setting.initial_wait_ms or 0
        return any(
            all(duration_ms % grid_ms == 0 for duration_ms in durations_ms)
            for grid_ms in self.grids_ms
        )


def plan(layers: int, heads: int) -> tuple[ReplaySetting, ...]:
    """Return every setting once.

    Args:
        layers: of the model's decoder.
        heads: of each of them.
    """
    every = chain(*(part.settings for part in parts(layers, heads).values()))
    return tuple(dict.fromkeys(every))


def parts(layers: int, heads: int) -> dict[str, Part]:
    """Return what can be run by itself, by name; the most wanted first.

    Args:
        layers: of the model's decoder.
        heads: of each of them.
    """
    attention = chain(EDATT, OFFLINE[:1], ALIGN_ATT, EDATT_UNDRAFTED, WITH_LAST_STATE)
    text = chain(AGREEMENT[2], AGREEMENT_UNDRAFTED, WAIT_K["adaptive"])
    attention_study = chain(
        *(LAMBDA[states] for states in LAMBDAS),
        *(layer(number + 1) for number in range(layers)),
        *(head(number + 1) for number in range(heads)),
        *(MEAN_OF_LAYERS, LAG_HELD["EDAtt"], LAG_HELD["AlignAtt"]),
    )
    text_study = chain(*(WAIT_K["fixed"], AGREEMENT_WAITED, AGREEMENT[3], AGREEMENT[4], HOLD))
    beams = chain(SHARED_PREFIX[2], AGREEMENT_BEAM, SHARED_PREFIX[1], HOLD_BEAM, OFFLINE[1:])
    return {
        "attention": Part("recording", MAIN_GRIDS_MS, tuple(attention)),
        "text": Part("recording", MAIN_GRIDS_MS, tuple(text)),
        "attention-study": Part("recording", MAIN_GRIDS_MS, tuple(attention_study)),
        "text-study": Part("recording", MAIN_GRIDS_MS, tuple(text_study)),
        "beams": Part("recording", MAIN_GRIDS_MS, tuple(beams)),
        "schedules": Part(
            "schedule-recording", (SCHEDULE_GRID_MS,), tuple(chain(*SCHEDULE.values()))
        ),
    }


TRAINING_PART = Part("recording", (TRAINING_SEGMENT_MS,), TRUNCATION)
"""Run by itself: its recording has no other boundaries."""
