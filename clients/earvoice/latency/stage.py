"""The stages of a word's time: their names, in the order in which they pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Hop = Literal["policy", "encoder", "decoder", "wait", "audio"]


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        name: without unit, as in ``earvoice.stage.NAME_ms``.
        label: for people.
        hop: where the time passes.
        blame: what is said of a word that is late because of it.
    """

    name: str
    label: str
    hop: Hop
    blame: str


AUDIO_WAIT = Stage("audio_wait", "audio wait", "audio", "the policy waited for more audio")
LATENESS = Stage("arrival_lateness", "late arrival of audio", "audio", "its audio arrived late")
HOLD = Stage("word_hold", "hold for the word", "policy", "the word was held until complete")
# The parts of `stage.total_ms`, from the segment's arrival to the commit.
SEGMENT_STAGES = (
    Stage("merge_wait", "merge wait", "wait", "its segment was merged into a longer one"),
    Stage(
        "previous_segment_wait",
        "wait for the segment before",
        "wait",
        "the segment before was still being worked on",
    ),
    Stage("encoder_queue", "encoder queue", "encoder", "it waited for the encoder's engine"),
    Stage("encoder_compute", "encoder computation", "encoder", "the encoder computed long"),
    Stage("encoder_network", "network to the encoder", "encoder", "the encoder's network was slow"),
    Stage("decoder_queue", "decoder queue", "decoder", "it waited for the decoder's engine"),
    Stage("decoder_compute", "decoder computation", "decoder", "the decoder computed long"),
    Stage("decoder_network", "network to the decoder", "decoder", "the decoder's network was slow"),
    Stage("decision", "decision", "policy", "the policy service itself was slow"),
)
# They add up to a word's lag.
WORD_STAGES = (AUDIO_WAIT, LATENESS, *SEGMENT_STAGES, HOLD)

StageTimes = Mapping[str, float]
"""Milliseconds by the name of the stage."""
