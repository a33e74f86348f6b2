"""Where an utterance ends: at a pause, or cut at the best place before it grows too long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from earvoice.policy.evidence import Evidence

LEADING_SILENCE_MS = 5000
"""Silence from the start of an utterance that ends it without a word."""
KEPT_SILENCE_MS = 500
"""Of that silence, what the next utterance keeps: speech may have just begun in it."""


class EndCause(Enum):
    """Why an utterance ended."""

    PAUSE = "pause"
    FORCED = "forced"
    END_OF_AUDIO = "end of audio"


@dataclass(frozen=True)
class Endpoint:
    """An utterance's end.

    Attributes:
        end_sample: where it ends and the next begins.
        cause: why.
    """

    end_sample: int
    cause: EndCause


class Endpointer:
    """Finds the end of utterances from voice activity and CTC labels.

    Args:
        sample_rate_hertz: frames per second of the positions.
        pause_ms: a pause this long ends an utterance.
    """

    def __init__(self, sample_rate_hertz: int, pause_ms: int) -> None:
        self._pause_samples = pause_ms * sample_rate_hertz // 1000
        self._leading_silence_samples = LEADING_SILENCE_MS * sample_rate_hertz // 1000
        self._kept_silence_samples = KEPT_SILENCE_MS * sample_rate_hertz // 1000

    def find_pause(
        self, evidence: Evidence, start_sample: int, end_sample: int, spoken_for_sample: int
    ) -> Endpoint | None:
        """Return the end if the audio has paused long enough, be it over again or not.

        A pause counts from the later of the last speech and the last CTC label in it, so that
        speech which only one of the two hears is not cut off. Labels hold it open for one pause
        at most: a network can hear words in noise without end.

        Args:
            evidence: the newest revision's.
            start_sample: where the utterance began.
            end_sample: audio that the evidence covers.
            spoken_for_sample: committed words attend to audio up to here; the utterance does not
                end before it.
        """
        voice = evidence.voice_activity
        if not voice.has_speech:
            if end_sample - start_sample < self._leading_silence_samples:
                return None
            return Endpoint(end_sample - self._kept_silence_samples, EndCause.PAUSE)
        for start, end in _pauses(evidence, end_sample):
            quiet_from = self._quiet_from(evidence, start_sample, start, end)
            place = max(quiet_from + self._pause_samples // 2, spoken_for_sample)
            if end - quiet_from >= self._pause_samples and place <= end:
                return Endpoint(place, EndCause.PAUSE)
        return None

    def _quiet_from(
        self, evidence: Evidence, utterance_start: int, pause_start: int, pause_end: int
    ) -> int:
        latest = pause_start + self._pause_samples
        for state, label in enumerate(evidence.ctc_labels):
            if label != evidence.blank_label:
                first, last = evidence.span(state, utterance_start)
                if pause_start < last and first < pause_end:
                    pause_start = last
        return min(pause_start, latest)

    def cut(
        self, evidence: Evidence, start_sample: int, end_sample: int, spoken_for_sample: int
    ) -> Endpoint:
        """Return the best place to cut an utterance that may not grow.

        The middle of the longest pause in its second half; without one, of the longest run of CTC
        blanks there; else its end.

        Args:
            evidence: the newest revision's.
            start_sample: where the utterance began.
            end_sample: audio that the evidence covers.
            spoken_for_sample: committed words attend to audio up to here; a cut before it would
                translate that audio twice.
        """
        earliest = max((start_sample + end_sample) // 2, spoken_for_sample)
        for gaps in (_pauses(evidence, end_sample), _blank_runs(evidence, start_sample)):
            middles = [
                (end - start, (start + end) // 2)
                for start, end in gaps
                if (start + end) // 2 > earliest
            ]
            if middles:
                return Endpoint(max(middles)[1], EndCause.FORCED)
        return Endpoint(end_sample, EndCause.FORCED)


def _pauses(evidence: Evidence, end_sample: int) -> Iterator[tuple[int, int]]:
    voice = evidence.voice_activity
    if voice.has_speech:
        yield from voice.pauses
        if voice.speech_end_sample < end_sample:
            yield voice.speech_end_sample, end_sample


def _blank_runs(evidence: Evidence, start_sample: int) -> Iterator[tuple[int, int]]:
    for state, label in enumerate(evidence.ctc_labels):
        if label == evidence.blank_label:
            yield evidence.span(state, start_sample)
