"""From a segment's states to released words: decode, decide, guard, commit, release."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from earvoice.policy.backend import DecoderBackend, Encoded, GenerationRequest
from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policy.decisions.wait_k import WORD_DURATION_MS
from earvoice.policy.event import (
    DecidedHypothesis,
    Event,
    ReleasedItem,
    TailChanged,
    WordsReleased,
)
from earvoice.policy.evidence import Evidence
from earvoice.policy.guards import Allowance, GuardEvidence, Guards
from earvoice.policy.history import forgotten_history
from earvoice.policy.hypothesis_reading import HypothesisReading
from earvoice.policy.release import released_item
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings, SegmentTimeline
from earvoice.policy.utterance import Utterance, tail_text
from earvoice.policy.words import CommitUnit, committable_count

MAX_TOKENS_PER_SECOND = 12
"""Fast German speech has some seven words' pieces a second; more is a model gone astray."""
MIN_HYPOTHESIS_TOKENS = 12
MAX_HYPOTHESIS_TOKENS = 400
RELEASED_HYPOTHESIS_TOKENS = 200

FRAMES_PER_SECOND = 100


@dataclass(frozen=True)
class Translated:
    """What a segment brought.

    Attributes:
        items: released.
        hypothesis: what was decoded; None when nothing was, or nobody asked.
    """

    items: Sequence[ReleasedItem]
    hypothesis: DecidedHypothesis | None = None


Settle = Callable[[Translated, HopTimings], SessionSnapshot | None]
"""Is told once a segment is decided, before its words leave, and of the generation up to then;
returns the session as it is after the segment, if words leave."""


class Translator:
    """Decodes and decides for one session.

    Args:
        options: what the stream asked for.
        decoder: an open decoder session.
        emit: sends an event to the client.
        now_s: monotonic clock.
        guards: count what they cut.
        tail: that the client knows; None where nobody can say.

    Attributes:
        options: may be replaced between segments.
        guards: see above.
    """

    def __init__(
        self,
        options: StreamOptions,
        decoder: DecoderBackend,
        emit: Callable[[Event], Awaitable[None]],
        now_s: Callable[[], float],
        guards: Guards,
        tail: str | None = "",
    ) -> None:
        self.options = options
        self._decoder = decoder
        self._emit = emit
        self._now_s = now_s
        self._tail = tail
        self.guards = guards

    async def translate(
        self,
        utterance: Utterance,
        encoded: Encoded,
        timeline: SegmentTimeline,
        delay_samples: int,
        record: SegmentRecord,
        settle: Settle,
        *,
        final: bool,
    ) -> Translated:
        """Decode a segment and release what may be released.

        Args:
            utterance: is changed by what is committed.
            encoded: the encoder's newest answer.
            timeline: gets the decoder's timings.
            delay_samples: audio received, counted from the session's first sample.
            record: is told what happens, and when.
            settle: called once.
            final: whether the utterance ends with this segment.
        """
        evidence = encoded.evidence
        heard = self._heard(utterance, evidence)
        request = self._request(utterance, encoded, heard, final=final)
        if request is None:
            await self._decoder.stay()
            return await self._release_rest(
                utterance, evidence, timeline, delay_samples, record, settle, final=final
            )
        reading = HypothesisReading(self._decoder, request)
        record.decoding(request, self._now_s())
        hypothesis = await reading.read(self._halting_policy(utterance, final=final))
        record.deciding_s = self._now_s()
        decision = _decide(utterance, heard, hypothesis, final=final)
        count = self._committable(utterance, evidence, hypothesis, decision, final=final)
        record.decided(hypothesis, decision, count)
        utterance.is_closed = decision.ends_utterance and count == len(hypothesis.tokens)
        now = timeline.commit_time(record.committing(self._now_s()), reading.deciding)
        holds = self.options.commit_unit is CommitUnit.TOKEN
        flush = not holds or final or utterance.is_closed
        words = utterance.commit(hypothesis, count, evidence, now, flush=flush)
        items = [released_item(word, utterance.index, now, delay_samples) for word in words]
        if not final:
            self._forget(utterance, evidence, reading.prefix_attention, hypothesis)
        translated = Translated(items, self._told(hypothesis, count))
        await self._release(utterance, items, settle(translated, reading.deciding))
        record.released(now.stages, items, self._now_s())
        await self._send_tail(utterance, () if final else hypothesis.tokens[count:])
        timeline.decoder += await reading.drain()
        utterance.draft += reading.rest
        record.decoded(reading.end, self._now_s())
        if reading.end is not None and reading.end.hit_limit:
            self.guards.note("hypothesis_length")
        return translated

    def _halting_policy(self, utterance: Utterance, *, final: bool) -> DecisionPolicy | None:
        """Return the policy that may halt the decoder: none where the whole hypothesis is due.

        A beam comes whole, and who asked for hypotheses wants them whole.
        """
        if final or self.options.beam_size > 1 or self.options.sends_hypotheses:
            return None
        return utterance.policy

    def _told(self, hypothesis: Hypothesis, count: int) -> DecidedHypothesis | None:
        if not self.options.sends_hypotheses:
            return None
        return DecidedHypothesis(hypothesis.token_ids, len(hypothesis.prefix), count)

    def _forget(
        self,
        utterance: Utterance,
        evidence: Evidence,
        prefix_rows: Sequence[Sequence[float]],
        hypothesis: Hypothesis,
    ) -> None:
        """Keep the text that the stream asked for, and the audio that it attends to."""
        if self.options.history_selection is None:
            return
        forgotten = forgotten_history(
            self.options.history_selection,
            utterance.kept,
            hypothesis,
            prefix_rows,
            evidence,
            utterance.start_sample,
            utterance.spoken_for_sample,
        )
        if forgotten is not None:
            utterance.forget(forgotten)

    def _heard(self, utterance: Utterance, evidence: Evidence) -> Heard:
        samples = utterance.sent_sample - utterance.begin_sample
        return Heard(
            samples * 1000 / self.options.audio_format.sample_rate_hertz,
            evidence.state_count,
            utterance.forgotten_word_count + evidence.complete_word_count,
            evidence.has_partial_word,
            utterance.written_token_count,
        )

    def _request(
        self, utterance: Utterance, encoded: Encoded, heard: Heard, *, final: bool
    ) -> GenerationRequest | None:
        """Return what to decode, or None when nothing could come of it."""
        policy = utterance.policy
        if utterance.is_closed:
            return None
        evidence = _guard_evidence(utterance, encoded.evidence)
        if self.options.uses_guards and self.guards.lacks_evidence(evidence):
            if not final:
                policy.pass_by(heard)
            elif heard.state_count:
                self.guards.note("evidence")
            return None
        if heard.state_count == 0:
            return None
        if not final and not policy.wants_hypothesis(heard):
            return None
        room = self._hypothesis_limit_tokens(encoded.evidence) - len(utterance.kept)
        if room <= 0:
            self.guards.note("hypothesis_length")
            return None
        return GenerationRequest(
            encoded.states,
            utterance.prefix,
            tuple(utterance.draft[:room]) if self.options.beam_size == 1 else (),
            room,
            forbid_end=policy.forbids_end_while_reading and not final,
            beam_size=self.options.beam_size,
            attention_layer=self.options.attention_layer,
            attention_heads=self.options.attention_heads,
            all_hypotheses=policy.reads_beam and not final,
            prefix_attention=self.options.history_selection is not None and not final,
        )

    def _hypothesis_limit_tokens(self, evidence: Evidence) -> int:
        """Return how long a hypothesis may be; without guards as long as in the released code."""
        if not self.options.uses_guards:
            return RELEASED_HYPOTHESIS_TOKENS
        seconds = evidence.frame_count / FRAMES_PER_SECOND
        limit = MIN_HYPOTHESIS_TOKENS + math.ceil(seconds * MAX_TOKENS_PER_SECOND)
        return min(limit, MAX_HYPOTHESIS_TOKENS)

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
        allowed = Allowance(decision.new_token_count)
        if self.options.uses_guards:
            allowed = self.guards.allow(
                _guard_evidence(utterance, evidence), hypothesis, decision.new_token_count
            )
        count = committable_count(
            hypothesis, allowed.token_count, self.options.commit_unit, final=final
        )
        utterance.note_commit(count, allowed.guard)
        return count

    async def _release_rest(
        self,
        utterance: Utterance,
        evidence: Evidence,
        timeline: SegmentTimeline,
        delay_samples: int,
        record: SegmentRecord,
        settle: Settle,
        *,
        final: bool,
    ) -> Translated:
        """Without a hypothesis, only an utterance's end releases what is held back."""
        if not final:
            settle(Translated(()), HopTimings())
            return Translated(())
        now = timeline.commit_time(record.committing(self._now_s()), HopTimings())
        nothing = Hypothesis(utterance.prefix, ())
        words = utterance.commit(nothing, 0, evidence, now, flush=True)
        items = [released_item(word, utterance.index, now, delay_samples) for word in words]
        translated = Translated(items)
        await self._release(utterance, items, settle(translated, HopTimings()))
        record.released(now.stages, items, self._now_s())
        await self._send_tail(utterance, ())
        return translated

    async def _release(
        self,
        utterance: Utterance,
        items: Sequence[ReleasedItem],
        snapshot: SessionSnapshot | None,
    ) -> None:
        if items:
            await self._emit(WordsReleased(items, utterance.start_sample, snapshot))

    async def _send_tail(self, utterance: Utterance, tokens: Sequence[Token]) -> None:
        """Show what may still change; nothing can once the utterance has ended."""
        if not self.options.sends_interim_results:
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
    word_count = evidence.source_word_count
    if not evidence.has_labels:
        # Nobody has counted: as many as an English speaker says in that time.
        word_count = int(evidence.frame_count * 1000 / FRAMES_PER_SECOND / WORD_DURATION_MS)
    return GuardEvidence(
        evidence.label_count,
        evidence.frame_count,
        word_count,
        utterance.committed_word_count,
        evidence.voice_activity.has_speech,
        evidence.has_labels,
    )
