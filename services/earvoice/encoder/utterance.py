"""One utterance: its audio so far, and what the network makes of it."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import Resampler, Samples, decode_audio
from earvoice.encoder.evidence import Span, last_label_end_frame, source_words, speech_spans
from earvoice.encoder.network import NO_STATES, Encoding, Network
from earvoice.models.config import FRAME_SHIFT_SAMPLES, SAMPLE_RATE_HZ, SPEECH_WINDOW_SAMPLES
from earvoice.runtime.audio_format import AudioFormat

Element = TypeVar("Element", bound=np.generic)


class Utterance:
    """Audio since a position, its features and speech probabilities.

    The output is a function of the samples alone: nothing that the resampler, the features or the
    network carry over depends on how the audio was cut. `finish` gives states computed from the
    whole utterance; with an end in the past, as if the rest had never come.
    """

    def __init__(
        self,
        network: Network,
        audio_format: AudioFormat,
        resampler: Resampler,
        start_sample: int,
    ) -> None:
        self.audio_format = audio_format
        self.start_sample = start_sample
        self._network = network
        self._resampler = resampler
        self._samples = GrowingArray(np.empty(0, np.float32))
        self._resampled_count = 0
        self._features_of = network.open_features()
        self._features = GrowingArray(np.empty((0, network.feature_bins), np.float32))
        self._speech_in = network.open_voice_activity()
        self._probabilities: list[float] = []
        self._encode_growing = network.open_encoding()
        self._encoded_frames = 0
        self._encoding = NO_STATES

    def another(self, start_sample: int) -> Utterance:
        return Utterance(self._network, self.audio_format, self._resampler, start_sample)

    @property
    def received_count(self) -> int:
        return len(self._samples)

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.received_count

    def add(self, data: bytes) -> None:
        self._samples.append(decode_audio(self.audio_format, data))
        complete = self._resampler.complete_count(len(self._samples))
        resampled = self._resampler.outputs(self._samples.rows, self._resampled_count, complete)
        self._resampled_count = complete
        self._features.append(self._features_of(resampled))
        self._probabilities += self._speech_in(resampled)

    def encode(self, *, skip_silence: bool = False, transcribe: bool = False) -> pb.Encoded:
        """Encode what has been received so far; the message has no states id yet.

        Args:
            skip_silence: whether to leave the network out until speech has been found; until then
                there are no states.
        """
        spans = self._spans_until(self.received_count)
        frame_count = len(self._features)
        rests = skip_silence and not spans
        encoding = NO_STATES if rests else self._encode()
        end_sample = self.end_sample
        return self.message(
            encoding, spans, frame_count, end_sample, final=False, transcribe=transcribe
        )

    def finish(
        self, end_sample: int, *, skip_silence: bool = False, transcribe: bool = False
    ) -> pb.Encoded:
        """Encode the utterance as ending here; audio after it counts as never received.

        Args:
            end_sample: position, between the utterance's start and the end of the audio received.
            skip_silence: as in `encode`.
        """
        sample_count = end_sample - self.start_sample
        kept, tail = self._features_until(sample_count)
        spans = self._spans_until(sample_count)
        frame_count = kept + len(tail)
        if not frame_count or (skip_silence and not spans):
            encoding = NO_STATES
        elif not len(tail) and kept == self._encoded_frames and self._encoding.is_whole:
            encoding = self._encoding
        else:
            encoding = self._network.encode(np.concatenate([self._features.rows[:kept], tail]))
        return self.message(
            encoding, spans, frame_count, end_sample, final=True, transcribe=transcribe
        )

    def _features_until(self, sample_count: int) -> tuple[int, Samples]:
        """How many of the frames held remain valid, and the frames that an end here adds.

        The resampler holds back what later samples would change; at an end there are none.
        """
        samples = self._samples.rows[:sample_count]
        complete = self._resampler.complete_count(sample_count)
        kept = min(self._network.feature_frame_count(complete), len(self._features))
        context = min(kept, self._network.feature_context_frames)
        begin = (kept - context) * FRAME_SHIFT_SAMPLES
        tail = self._resampler.outputs(samples, begin, self._resampler.total_count(sample_count))
        return kept, self._network.open_features()(tail)[context:]

    def _encode(self) -> Encoding:
        """Encode the frames so far; the same ones are not encoded twice."""
        if len(self._features) != self._encoded_frames:
            self._encoding = self._encode_growing(self._features.rows)
            self._encoded_frames = len(self._features)
        return self._encoding

    def _spans_until(self, sample_count: int) -> list[Span]:
        """Stretches of speech in the windows that this many samples complete."""
        windows = self._resampler.complete_count(sample_count) // SPEECH_WINDOW_SAMPLES
        return speech_spans(self._probabilities[:windows])

    def message(
        self,
        encoding: Encoding,
        spans: list[Span],
        frame_count: int,
        end_sample: int,
        *,
        final: bool,
        transcribe: bool = False,
    ) -> pb.Encoded:
        """Return the message for a network's output; its states have no id yet.

        Args:
            spans: stretches of speech, in windows.
            final: whether the utterance ends here; its last state then does too.
        """
        network, rate_hz = self._network, self.audio_format.sample_rate_hz
        encoder_frame = network.encoder_frame_ms * SAMPLE_RATE_HZ // 1000

        def position(model_samples: int) -> int:
            """The client's position this many 16 kHz samples after the utterance's start."""
            return min(self.start_sample + model_samples * rate_hz // SAMPLE_RATE_HZ, end_sample)

        ends = [position(frames * encoder_frame) for frames in accumulate(encoding.run_lengths)]
        if final and ends:
            ends[-1] = end_sample
        word_count, has_partial, labels = source_words(
            encoding.frame_labels, network.blank, network.label_kinds, final=final
        )
        transcript = network.transcribe(labels) if transcribe else ""
        last_label_frame = last_label_end_frame(encoding.frame_labels, network.blank)
        speech = [
            (position(begin * SPEECH_WINDOW_SAMPLES), position(end * SPEECH_WINDOW_SAMPLES))
            for begin, end in spans
        ]
        return pb.Encoded(
            states=types_pb2.States(
                state_count=len(encoding.run_lengths),
                dimension=network.dimension,
                element_type=types_pb2.ELEMENT_TYPE_FLOAT32,
                data=encoding.states,
                span_end_samples=ends,
                final=final,
            ),
            evidence=pb.SourceEvidence(
                ctc_labels=encoding.labels,
                blank_label=network.blank,
                complete_word_count=word_count,
                has_partial_word=has_partial,
                label_count=len(labels),
                last_label_end_sample=position(last_label_frame * encoder_frame),
                source_transcript=transcript if final else "",
                partial_transcript="" if final else transcript,
                frame_count=frame_count,
                voice_activity=pb.VoiceActivity(
                    has_speech=bool(speech),
                    speech_start_sample=speech[0][0] if speech else self.start_sample,
                    speech_end_sample=speech[-1][1] if speech else self.start_sample,
                    pauses=[
                        pb.Pause(start_sample=before[1], end_sample=after[0])
                        for before, after in pairwise(speech)
                    ],
                ),
            ),
        )


class GrowingArray(Generic[Element]):
    """Rows appended in blocks, read as one array without a copy."""

    def __init__(self, empty: NDArray[Element]) -> None:
        self._rows = empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> NDArray[Element]:
        """All rows; valid until the next `append`."""
        return self._rows[: self._count]

    def append(self, block: NDArray[Element]) -> None:
        """Add rows; capacity doubles, so that each row is copied a bounded number of times."""
        needed = self._count + len(block)
        if needed > len(self._rows):
            grown = np.empty((max(needed, 2 * len(self._rows)), *block.shape[1:]), block.dtype)
            grown[: self._count] = self.rows
            self._rows = grown
        self._rows[self._count : needed] = block
        self._count = needed
