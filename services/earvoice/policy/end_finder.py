"""Why and where the utterances of one stream end."""

from __future__ import annotations

from earvoice.policy.endpoint import EndCause, Endpoint, Endpointer
from earvoice.policy.evidence import Evidence
from earvoice.policy.segment_grid import Segment
from earvoice.policy.stream_options import Endpointing, StreamOptions
from earvoice.policy.utterance import Utterance

MAX_KEPT_MS = 40_000
"""An utterance without endpointing is cut before history selection keeps more than this of it."""


class EndFinder:
    """Finds the end of utterances: with the audio, at a pause, in a loop, or before the limit.

    Args:
        options: what the stream asked for; updates change nothing here.
    """

    def __init__(self, options: StreamOptions) -> None:
        rate_hertz = options.audio_format.sample_rate_hertz
        self._ends_at_pauses = options.endpointing is not None
        pause_ms = (options.endpointing or Endpointing()).pause_ms
        self._endpointer = Endpointer(rate_hertz, pause_ms)
        limit_ms = _limit_ms(options)
        self._limit_samples = None if limit_ms is None else limit_ms * rate_hertz // 1000

    def limit_sample(self, utterance: Utterance) -> int | None:
        """Return what no segment of an utterance ends behind; None for no limit of ours."""
        if self._limit_samples is None:
            return None
        return utterance.start_sample + self._limit_samples

    def known_end(self, utterance: Utterance, segment: Segment) -> Endpoint | None:
        """Return an end that is no question of what is heard: the audio's, or that of a loop.

        Where only the audio ends utterances, not even a loop does. What is said next begins behind
        the words that are committed, but not before half of the audio: a text that hangs on its
        beginning would be gone through again and again.
        """
        if utterance.loops and self._limit_samples is not None:
            half_sample = (utterance.start_sample + segment.end_sample) // 2
            place_sample = max(half_sample, utterance.spoken_for_sample)
            return Endpoint(place_sample, EndCause.FORCED)
        if segment.final:
            return Endpoint(segment.end_sample, EndCause.END_OF_AUDIO)
        return None

    def heard_end(
        self, utterance: Utterance, segment: Segment, evidence: Evidence, *, is_last: bool
    ) -> Endpoint | None:
        """Return the end at a pause, or the cut that is due.

        Args:
            utterance: its committed words are never cut apart.
            segment: heard last.
            evidence: of all that is kept of the utterance.
            is_last: whether the next segment would end behind the limit.
        """
        place = (
            evidence,
            utterance.start_sample,
            segment.end_sample,
            utterance.spoken_for_sample,
        )
        pause = self._endpointer.find_pause(*place) if self._ends_at_pauses else None
        if pause is None and is_last:
            return self._endpointer.cut(*place)
        return pause


def _limit_ms(options: StreamOptions) -> int | None:
    if options.endpointing is not None:
        return options.endpointing.max_utterance_ms
    return MAX_KEPT_MS if options.history_selection is not None else None
