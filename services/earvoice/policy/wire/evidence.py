"""The encoder's and the decoder's answers, as the session sees them."""

from __future__ import annotations

from earvoice.api.v1 import decoder_service_pb2, encoder_service_pb2
from earvoice.policy.decisions.base import Token
from earvoice.policy.evidence import Evidence, VoiceActivity


def evidence_of(encoded: encoder_service_pb2.Encoded) -> Evidence:
    """Return what the encoder heard."""
    heard, voice = encoded.evidence, encoded.evidence.voice_activity
    return Evidence(
        ctc_labels=list(heard.ctc_labels),
        blank_label=heard.blank_label,
        span_end_samples=list(encoded.states.span_end_samples),
        complete_word_count=heard.complete_word_count,
        has_partial_word=heard.has_partial_word,
        label_count=heard.label_count,
        last_label_end_sample=heard.last_label_end_sample,
        frame_count=heard.frame_count,
        voice_activity=VoiceActivity(
            voice.has_speech,
            voice.speech_start_sample,
            voice.speech_end_sample,
            [(pause.start_sample, pause.end_sample) for pause in voice.pauses],
        ),
        source_transcript=heard.source_transcript,
    )


def token_of(step: decoder_service_pb2.Step) -> Token:
    """Return a step's token."""
    return Token(
        step.token, step.text, step.starts_word, list(step.attention), step.log_probability
    )
