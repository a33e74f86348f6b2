"""From a segment's states to released words: decode, decide, guard, commit, release."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from earvoice.policy.backend import DecoderBackend, Encoded, GenerationRequest
from earvoice.policy.decisions.base import Decision, Heard, Hypothesis, Token
from earvoice.policy.event import Event, ReleasedItem, TailChanged, WordsReleased
from earvoice.policy.evidence import Evidence
from earvoice.policy.guards import GuardEvidence, Guards
from earvoice.policy.hypothesis_reading import HypothesisReading
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import CommitTime, HopTimings, SegmentTimeline
from earvoice.policy.utterance import TokenOrigin, Utterance, tail_text
from earvoice.policy.words import Word, count_to_word_border

MAX_TOKENS_PER_SECOND = 12
"""Fast German speech has some seven words' pieces a second; more is a model gone astray."""
MIN_HYPOTHESIS_TOKENS = 12
MAX_HYPOTHESIS_TOKENS = 400

FRAMES_PER_SECOND = 100


class Translator:
    """Decodes and decides for one session.

    Args:
        options: what the stream asked for.
        decoder: an open decoder session.
        emit: sends an event to the client.
        now_s: monotonic clock.

    Attributes:
        guards: count what they cut.
    """

    def __init__(
        self,
        options: StreamOptions,
        decoder: DecoderBackend,
        emit: Callable[[Event], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._options = options
        self._decoder = decoder
        self._emit = emit
        self._now_s = now_s
        self._tail = ""
        self.guards = Guards()

    async def translate(
        self,
        utterance: Utterance,
        encoded: Encoded,
        timeline: SegmentTimeline,
        delay_samples: int,
        *,
        final: bool,
    ) -> list[ReleasedItem]:
        """Decode a segment and release what may be released.

        Args:
            utterance: is changed by what is committed.
            encoded: the encoder's newest answer.
            timeline: gets the decoder's timings.
            delay_samples: audio received, counted from the session's first sample.
            final: whether the utterance ends with this segment.
        """
        evidence = encoded.evidence
        heard = self._heard(utterance, evidence)
        request = self._request(utterance, encoded, heard, final=final)
        if request is None:
            await self._decoder.stay()
            return await self._release_rest(utterance, evidence, timeline, delay_samples, final)
        reading = HypothesisReading(self._decoder, request)
        hypothesis = await reading.read(None if final else utterance.policy)
        decision = _decide(utterance, heard, hypothesis, final=final)
        count = self._committable(utterance, evidence, hypothesis, decision, final=final)
        utterance.is_closed = decision.ends_utterance and count == len(hypothesis.tokens)
        now = timeline.commit_time(self._now_s(), reading.deciding)
        flush = self._options.commits_words or final or utterance.is_closed
        words = utterance.commit(hypothesis, count, evidence, now, flush=flush)
        items = await self._release(utterance, words, now, delay_samples)
        await self._send_tail(utterance, () if final else hypothesis.tokens[count:])
        timeline.decoder += await reading.drain()
        if reading.hit_limit:
            self.guards.note("hypothesis_length")
        return items

    def _heard(self, utterance: Utterance, evidence: Evidence) -> Heard:
        samples = utterance.sent_sample - utterance.start_sample
        return Heard(
            samples * 1000 / self._options.audio_format.sample_rate_hertz,
            evidence.state_count,
            evidence.complete_word_count,
            evidence.has_partial_word,
        )

    def _request(
        self, utterance: Utterance, encoded: Encoded, heard: Heard, *, final: bool
    ) -> GenerationRequest | None:
        """Return what to decode, or None when nothing could come of it."""
        policy = utterance.policy
        if utterance.is_closed or heard.state_count == 0:
            return None
        evidence = _guard_evidence(utterance, encoded.evidence)
        if self._options.uses_guards and self.guards.lacks_evidence(evidence):
            if final:
                self.guards.note("evidence")
            return None
        if not final and not policy.wants_hypothesis(heard):
            return None
        room = _hypothesis_limit_tokens(encoded.evidence) - len(utterance.prefix)
        if room <= 0:
            self.guards.note("hypothesis_length")
            return None
        return GenerationRequest(
            encoded.states,
            tuple(utterance.prefix),
            tuple(utterance.draft[:room]),
            room,
            forbid_end=policy.forbids_end_while_reading and not final,
        )

    def _committable(
        self,
        utterance: Utterance,
        evidence: Evidence,
        hypothesis: Hypothesis,
        decision: Decision,
        *,
        final: bool,
    ) -> int:
        """Apply the guards, then the word border, to what the policy decided."""
        count = decision.new_token_count
        if self._options.uses_guards:
            count = self.guards.allowed_count(
                _guard_evidence(utterance, evidence), hypothesis, count
            )
        if not self._options.commits_words:
            return count
        return count_to_word_border(hypothesis, count, final=final)

    async def _release_rest(
        self,
        utterance: Utterance,
        evidence: Evidence,
        timeline: SegmentTimeline,
        delay_samples: int,
        final: bool,  # noqa: FBT001 - private
    ) -> list[ReleasedItem]:
        """Without a hypothesis, only an utterance's end releases what is held back."""
        if not final:
            return []
        now = timeline.commit_time(self._now_s(), HopTimings())
        nothing = Hypothesis(tuple(utterance.prefix), ())
        words = utterance.commit(nothing, 0, evidence, now, flush=True)
        items = await self._release(utterance, words, now, delay_samples)
        await self._send_tail(utterance, ())
        return items

    async def _release(
        self,
        utterance: Utterance,
        words: Sequence[Word[TokenOrigin]],
        now: CommitTime,
        delay_samples: int,
    ) -> list[ReleasedItem]:
        items = [_item(word, utterance.index, now, delay_samples) for word in words]
        if items:
            await self._emit(WordsReleased(items, utterance.start_sample))
        return items

    async def _send_tail(self, utterance: Utterance, tokens: Sequence[Token]) -> None:
        """Show what may still change; nothing can once the utterance has ended."""
        if not self._options.sends_interim_results:
            return
        text = tail_text(tokens)
        if text != self._tail:
            self._tail = text
            await self._emit(TailChanged(text, utterance.index))


def _decide(utterance: Utterance, heard: Heard, hypothesis: Hypothesis, *, final: bool) -> Decision:
    if final:
        return Decision(len(hypothesis.tokens))
    return utterance.policy.decide(heard, hypothesis)


def _guard_evidence(utterance: Utterance, evidence: Evidence) -> GuardEvidence:
    return GuardEvidence(
        evidence.label_count,
        evidence.frame_count,
        evidence.source_word_count,
        utterance.committed_word_count,
        evidence.voice_activity.has_speech,
    )


def _hypothesis_limit_tokens(evidence: Evidence) -> int:
    seconds = evidence.frame_count / FRAMES_PER_SECOND
    limit = MIN_HYPOTHESIS_TOKENS + math.ceil(seconds * MAX_TOKENS_PER_SECOND)
    return min(limit, MAX_HYPOTHESIS_TOKENS)


def _item(
    word: Word[TokenOrigin], utterance: int, now: CommitTime, delay_samples: int
) -> ReleasedItem:
    committed = word.origins[-1].commit_time
    hold_ms = now.moment_ms - committed.moment_ms
    stages = replace(
        committed.stages, total_ms=committed.stages.total_ms + hold_ms, word_hold_ms=hold_ms
    )
    return ReleasedItem(
        word.text,
        word.starts_word,
        utterance,
        min(origin.source_start_sample for origin in word.origins),
        max(origin.source_end_sample for origin in word.origins),
        delay_samples,
        now.elapsed_ms,
        stages,
    )
