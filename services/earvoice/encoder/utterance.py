"""One utterance: its audio so far, and what the network makes of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from earvoice.encoder.audio_format import AudioFormat, Samples
from earvoice.encoder.evidence import (
    SourceWords,
    VoiceActivity,
    last_label_end_frame,
    source_words,
    voice_activity,
)
from earvoice.encoder.growing_array import GrowingArray
from earvoice.encoder.network import NO_STATES, Encoding, Network
from earvoice.encoder.resampler import Resampler
from earvoice.encoder.timeline import Timeline
from earvoice.encoder.voice_activity import WINDOW_SAMPLES, Span, speech_spans
from earvoice.models.config import FRAME_SHIFT_MS, SAMPLE_RATE_HZ

FRAME_SHIFT_SAMPLES = FRAME_SHIFT_MS * SAMPLE_RATE_HZ // 1000
"""16 kHz samples between the beginnings of two feature frames."""


@dataclasses.dataclass(frozen=True)
class Hearing:
    """The utterance as the network hears it."""

    encoding: Encoding
    span_end_samples: list[int]
    words: SourceWords
    last_label_end_sample: int
    voice_activity: VoiceActivity
    frame_count: int
    """Feature frames of 10 ms."""
    blank: int
    """The CTC label that means blank."""
    dimension: int
    """Values of one state."""


class Utterance:
    """Audio since a position, its features and speech probabilities.

    What is heard is a function of the samples alone: the resampler and the features carry nothing
    that depends on how the audio was cut, the network sees the whole utterance each time, and an
    end in the past gives what would have been heard had the rest never come.

    Args:
        network: the model.
        audio_format: of every byte that comes.
        resampler: from the format's rate to the model's.
        start_sample: position of the first sample in the session.
    """

    def __init__(
        self,
        network: Network,
        audio_format: AudioFormat,
        resampler: Resampler,
        start_sample: int,
    ) -> None:
        self._network = network
        self._format = audio_format
        self._resampler = resampler
        self._start_sample = start_sample
        self._samples = GrowingArray(np.empty(0, np.float32))
        self._resampled_count = 0
        self._extractor = network.open_features()
        self._features = GrowingArray(np.empty((0, network.feature_bins), np.float32))
        self._judge = network.open_judge()
        self._probabilities: list[float] = []
        self._encoded_frames = 0
        self._encoding = NO_STATES

    @property
    def start_sample(self) -> int:
        """Position where the utterance begins."""
        return self._start_sample

    @property
    def received_count(self) -> int:
        """Samples received, at the client's rate."""
        return len(self._samples)

    @property
    def end_sample(self) -> int:
        """Position where the audio received ends."""
        return self._start_sample + self.received_count

    def add(self, data: bytes) -> None:
        """Take more audio.

        Raises:
            InvalidAudioError: a frame is broken or a value is no amplitude.
        """
        self._samples.append(self._format.decode(data))
        complete = self._resampler.complete_count(len(self._samples))
        resampled = self._resampler.outputs(self._samples.rows, self._resampled_count, complete)
        self._resampled_count = complete
        self._features.append(self._extractor.accept(resampled))
        self._probabilities += self._judge.accept(resampled)

    def hear(self, *, skip_silence: bool = False) -> Hearing:
        """What is heard while more audio may come.

        Args:
            skip_silence: whether the network may rest until speech has been found; then there are
                no states.
        """
        spans = self._spans_until(self.received_count)
        frame_count = len(self._features)
        rests = skip_silence and not spans
        encoding = NO_STATES if rests else self._encode(self._features.rows, frame_count)
        timeline = Timeline(self._start_sample, self.end_sample, self._format.sample_rate_hz)
        return self._hearing(timeline, spans, encoding, frame_count, final=False)

    def finish(self, end_sample: int) -> Hearing:
        """What is heard when the utterance ends here; audio after it counts as never received.

        Args:
            end_sample: position, from the utterance's start to what was received.
        """
        sample_count = end_sample - self._start_sample
        kept, tail = self._features_until(sample_count)
        features = self._features.rows[:kept]
        if len(tail):
            encoding = self._network.encode(np.concatenate([features, tail]))
        else:
            encoding = self._encode(features, kept)
        timeline = Timeline(self._start_sample, end_sample, self._format.sample_rate_hz)
        spans = self._spans_until(sample_count)
        return self._hearing(timeline, spans, encoding, kept + len(tail), final=True)

    def _features_until(self, sample_count: int) -> tuple[int, Samples]:
        """How many frames held stay as they are, and the frames that an end here adds.

        The resampler holds back what later samples would change; at an end nothing comes later.
        """
        samples = self._samples.rows[:sample_count]
        complete = self._resampler.complete_count(sample_count)
        kept = min(self._network.feature_frame_count(complete), len(self._features))
        tail = self._resampler.outputs(
            samples, kept * FRAME_SHIFT_SAMPLES, self._resampler.total_count(sample_count)
        )
        return kept, self._network.open_features().accept(tail)

    def _encode(self, features: Samples, frame_count: int) -> Encoding:
        """Encode frames that no later audio changes; the same frames are not encoded twice."""
        if frame_count == 0:
            return NO_STATES
        if frame_count != self._encoded_frames:
            self._encoding = self._network.encode(features)
            self._encoded_frames = frame_count
        return self._encoding

    def _spans_until(self, sample_count: int) -> list[Span]:
        """Stretches of speech in the windows that this many samples complete."""
        windows = self._resampler.complete_count(sample_count) // WINDOW_SAMPLES
        return speech_spans(self._probabilities[:windows])

    def _hearing(
        self,
        timeline: Timeline,
        spans: list[Span],
        encoding: Encoding,
        frame_count: int,
        *,
        final: bool,
    ) -> Hearing:
        network = self._network
        labels = encoding.frame_labels
        last_label_ms = last_label_end_frame(labels, network.blank) * network.encoder_frame_ms
        return Hearing(
            encoding=encoding,
            span_end_samples=timeline.span_ends(
                encoding.run_lengths, network.encoder_frame_ms, final=final
            ),
            words=source_words(labels, network.blank, network.label_kinds, final=final),
            last_label_end_sample=timeline.after_ms(last_label_ms),
            voice_activity=voice_activity(spans, timeline),
            frame_count=frame_count,
            blank=network.blank,
            dimension=network.dimension,
        )
