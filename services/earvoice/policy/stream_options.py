"""What one stream asked for, every default filled in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from earvoice.policies import DecisionPolicy
from earvoice.runtime.audio_format import AudioFormat

CommitUnit = Literal["word", "followed-word", "token"]
HistorySelection = int | Literal["last sentence"]
"""What is kept of an endless utterance (StreamAtt, Papi 2024): this many of its last words, 1 to
200, or what follows the last end of a sentence."""


@dataclass(frozen=True)
class Endpointing:
    """Where utterances end inside a stream."""

    pause_ms: int = 600
    max_utterance_ms: int = 20_000
    pause_in_sentence_ms: int = 1200
    """A pause that ends an utterance whose text ends within a sentence."""


@dataclass(frozen=True)
class Confidence:
    """How sure the model is of a word, and how sure it must be of an utterance.

    Calibrates the model's probability p of a word's text by a function that was fitted on words
    known to be right or wrong: the logistic function of ``unsure_scale`` ln(p) minus
    ``sure_scale`` ln(1 - p) plus ``offset`` (beta calibration, Kull 2017).

    Attributes:
        least: an utterance's words are held back until their mean confidence reaches this, or
            that of the words they translate, where the model writes these; 0 to 1.
        by_agreement: whether the words judged are words as spoken. Then an utterance is not
            understood while encoder and decoder hear different things, and is understood if they
            agree at its end.
    """

    unsure_scale: float = 1.0
    sure_scale: float = 1.0
    offset: float = 0.0
    least: float = 0.0
    by_agreement: bool = False

    @property
    def compares(self) -> bool:
        """Whether the encoder's transcript is needed before an utterance's end."""
        return self.by_agreement and self.least > 0

    def of(self, log_probability: float) -> float:
        """Return the confidence of a text with this probability, 0 to 1."""
        # Both bounds are as good as certain, and keep the logarithms finite.
        log_probability = min(max(log_probability, -50.0), -1e-9)
        other = math.log(-math.expm1(log_probability))
        logit = self.unsure_scale * log_probability - self.sure_scale * other + self.offset
        # The logistic function, in a form that cannot overflow.
        return (1 + math.tanh(logit / 2)) / 2


@dataclass(frozen=True)
class StreamOptions:
    """One stream's choices.

    Attributes:
        target_language_code: BCP-47 tag.
        attention_layer: decoder layer whose cross-attention is read, from 1.
        initial_wait_ms: how much longer the first segment of each utterance is.
        merges_segments: whether a late machine skips to the newest boundary.
        endpointing: None when utterances end only with the audio.
        uses_guards: False reproduces released code.
        beam_size: hypotheses that the decoder follows, 1 to 16; 1 is greedy search.
        attention_heads: heads whose mean is read, from 1; empty means all.
        history_selection: None when an utterance's text and audio are kept to its end.
        target_lag_ms: mean word lag to hold by moving the policy's own parameter; None for none.
        longest_utterance_ms: the model hears no more of a longer one; None where it has no limit.
    """

    audio_format: AudioFormat
    target_language_code: str
    policy: DecisionPolicy
    attention_layer: int
    segment_ms: int
    initial_wait_ms: int = 0
    merges_segments: bool = True
    commit_unit: CommitUnit = "word"
    endpointing: Endpointing | None = Endpointing()
    sends_interim_results: bool = False
    sends_source_transcript: bool = False
    sends_stage_timings: bool = False
    uses_guards: bool = True
    beam_size: int = 1
    attention_heads: tuple[int, ...] = ()
    history_selection: HistorySelection | None = None
    sends_hypotheses: bool = False
    target_lag_ms: int | None = None
    confidence: Confidence = Confidence()
    longest_utterance_ms: int | None = None
