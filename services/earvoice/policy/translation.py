"""From a segment's states to released words: decode, decide, guard, commit, release."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from earvoice.policies.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Token,
    longest_common_prefix_tokens,
)
from earvoice.policy.backend import (
    DecoderBackend,
    Encoded,
    GenerationEnd,
    GenerationRequest,
    GenerationSteps,
)
from earvoice.policy.evidence import Evidence
from earvoice.policy.guards import Guards
from earvoice.policy.history import forgotten_history
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings, SegmentTimeline
from earvoice.policy.utterance import Utterance
from earvoice.policy.words import Word, committable_count, written_text
from earvoice.runtime.errors import InternalError, shown

MAX_TOKENS_PER_SECOND = 12
"""Fast German speech has some seven word pieces a second; beyond this the model has gone astray."""
MIN_HYPOTHESIS_TOKENS = 12
MAX_HYPOTHESIS_TOKENS = 400
RELEASED_HYPOTHESIS_TOKENS = 200

FRAMES_PER_SECOND = 100


class HypothesisReading:
    """One generation, read as far as the policy needs it, then to its end.

    Attributes:
        timings: the generation's, as of the last answer read.
        prefix_attention: a row for each token of the prefix, if asked for and answered.
        decided_count: new tokens up to the one at which the policy had decided; None if it had not.
    """

    def __init__(self, decoder: DecoderBackend, request: GenerationRequest) -> None:
        self._decoder = decoder
        self._request = request
        self._answers: AsyncIterator[GenerationSteps | GenerationEnd] = decoder.generate(request)
        self.timings = HopTimings()
        self.prefix_attention: Sequence[Sequence[float]] = ()
        self.end: GenerationEnd | None = None
        self.decided_count: int | None = None
        self._found: list[int] = []

    async def read(self, policy: DecisionPolicy | None, *, halts: bool = True) -> Hypothesis:
        """Read until the policy has decided, or to the end.

        Args:
            policy: asked after every token until it has decided; None reads to the end.
            halts: whether the decoder is halted then.
        """
        tokens: list[Token] = []
        end: Token | None = None
        alternatives: Sequence[Sequence[int]] = ()
        source: Sequence[Token] = ()
        async for answer in self._answers:
            self.timings = answer.timings
            if isinstance(answer, GenerationEnd):
                self.end = answer
                break
            if answer.restarts:
                tokens, alternatives, self.decided_count = [], (), None
            first = len(tokens)
            tokens += answer.tokens
            end = answer.end
            alternatives = answer.alternatives or alternatives
            source = answer.source or source
            self.prefix_attention = answer.prefix_attention or self.prefix_attention
            if policy is not None and self.decided_count is None:
                new = enumerate(tokens[first:], first + 1)
                decided = (count for count, token in new if policy.is_decided(token, count - 1))
                self.decided_count = next(decided, None)
            if halts and self.decided_count is not None:
                self._decoder.halt()
                break
        self._found = [token.token_id for token in tokens]
        return Hypothesis(self._request.prefix, tokens, end, alternatives, source)

    async def finish(self, utterance: Utterance, timeline: SegmentTimeline) -> None:
        """Read to the end; what the decoder had computed before a halt extends the draft."""
        if self.end is None:
            async for answer in self._answers:
                self.timings = answer.timings
                if isinstance(answer, GenerationEnd):
                    self.end = answer
                    break
                rest = tuple(token.token_id for token in answer.tokens)
                self._found += rest
                utterance.draft += rest
        timeline.decoder = self.timings
        if self.end is not None:
            draft = self._request.draft
            timeline.draft_accepted_count = longest_common_prefix_tokens([draft, self._found])


async def translate(
    utterance: Utterance,
    encoded: Encoded,
    timeline: SegmentTimeline,
    options: StreamOptions,
    decoder: DecoderBackend,
    guards: Guards,
    now_s: Callable[[], float],
    delay_samples: int,
    *,
    final: bool,
) -> tuple[Sequence[Word], str | None, HypothesisReading | None]:
    """Decode a segment and commit what may be committed; the generation may still run.

    Args:
        delay_samples: audio received, counted from the session's first sample.
        final: whether the utterance ends with this segment.

    Returns:
        The words released; the text that may still change, None if it has not changed;
        the generation, if there is one, to be read to its end.
    """
    evidence, policy = encoded.evidence, utterance.policy
    timeline.state_count = len(evidence.span_end_samples)
    heard = _heard(utterance, evidence, options.audio_format.sample_rate_hz)
    request = _request(utterance, encoded, heard, options, guards, final=final)
    if request is None:
        await decoder.keep_alive()
        if not final:
            return (), None, None
        # Without a hypothesis, only an utterance's end releases what is held back.
        nothing, now = Hypothesis(utterance.prefix, ()), timeline.commit(now_s())
        words = utterance.commit(
            nothing,
            0,
            evidence,
            now,
            delay_samples,
            options.confidence,
            flush=True,
            final=True,
        )
        return words, "", None
    reading = HypothesisReading(decoder, request)
    timeline.decoding_s = now_s()
    timeline.prefix_token_count = len(request.prefix)
    timeline.draft_token_count = len(request.draft)
    timeline.beam_size = request.beam_size
    # A beam comes whole, and a client that asked for hypotheses wants them whole.
    whole = final or options.beam_size > 1
    hypothesis = await reading.read(None if whole else policy, halts=not options.sends_hypotheses)
    # How much comes behind the token that decides depends on drafts and timing.
    known = hypothesis
    if reading.decided_count is not None:
        known = replace(hypothesis, tokens=hypothesis.tokens[: reading.decided_count], end=None)
    timeline.deciding_s = now_s()
    timeline.decoder = reading.timings
    if reading.end is not None and reading.end.hit_limit:
        # A hypothesis that was decided before its end lost nothing to the limit.
        guards.note("hypothesis_length")
    decision = Decision(len(known.tokens)) if final else _decision(policy, heard, known)
    count, guard = decision.new_token_count, ""
    if options.uses_guards:
        written = len(utterance.word_end_samples)
        count, guard = guards.allow(
            evidence, known, count, written, utterance.spoken_for_sample, final=final
        )
    count = committable_count(known, count, options.commit_unit, final=final)
    timeline.proposed_token_count = len(hypothesis.tokens)
    timeline.accepted_token_count = decision.new_token_count
    timeline.committed_token_count = count
    utterance.is_closed = decision.ends_utterance and count == len(known.tokens)
    now = timeline.commit(now_s())
    flush = options.commit_unit != "token" or final or utterance.is_closed
    utterance.note_end(known)
    words = utterance.commit(
        hypothesis,
        count,
        evidence,
        now,
        delay_samples,
        options.confidence,
        flush=flush,
        final=final,
        guard=guard,
    )
    if options.history_selection is not None and not final:
        # Of the whole hypothesis on request, as in the released code.
        whole_or_known = hypothesis if options.sends_hypotheses else known
        forgotten = forgotten_history(
            options.history_selection,
            utterance.kept,
            whole_or_known,
            reading.prefix_attention,
            evidence,
            utterance.start_sample,
            utterance.spoken_for_sample,
        )
        if forgotten is not None:
            utterance.forget(*forgotten)
    if options.sends_hypotheses:
        timeline.hypothesis_tokens = tuple(hypothesis.token_ids)
    # A tail that may turn out not to be understood is not shown either.
    shows_tail = not final and (utterance.shows_tail or not options.confidence.least)
    return words, _tail(utterance, hypothesis.tokens[count:]) if shows_tail else "", reading


def _heard(utterance: Utterance, evidence: Evidence, rate_hz: int) -> Heard:
    # For forgotten audio, the words committed stand in for its source words: how far the text is
    # behind then depends on the kept audio only, and counting errors do not add up over an endless
    # utterance.
    forgotten_word_count = utterance.written_word_count - len(utterance.word_end_samples)
    return Heard(
        duration_ms=(utterance.sent_sample - utterance.begin_sample) * 1000 / rate_hz,
        state_count=len(evidence.span_end_samples),
        complete_word_count=forgotten_word_count + evidence.complete_word_count,
        has_partial_word=evidence.has_partial_word,
        committed_token_count=utterance.written_token_count,
    )


def _tail(utterance: Utterance, uncommitted: Sequence[Token]) -> str:
    """Return the text that may still change: the beginning of a word that is held, and the rest."""
    pieces = [(token.starts_word, token.text) for token in uncommitted]
    if utterance.held is not None:
        pieces.insert(0, (utterance.held.starts_word, utterance.held.utf8))
    return written_text(pieces)


def _request(
    utterance: Utterance,
    encoded: Encoded,
    heard: Heard,
    options: StreamOptions,
    guards: Guards,
    *,
    final: bool,
) -> GenerationRequest | None:
    policy, evidence = utterance.policy, encoded.evidence
    if utterance.is_closed:
        return None
    if options.uses_guards and guards.lacks_evidence(evidence):
        if not final:
            policy.skip_segment(heard)
        elif evidence.frame_count:
            guards.note("evidence")
        return None
    if heard.state_count == 0 or (not final and not policy.wants_hypothesis(heard)):
        return None
    # Without guards it may grow as long as in the released code.
    limit = RELEASED_HYPOTHESIS_TOKENS
    if options.uses_guards:
        seconds = evidence.frame_count / FRAMES_PER_SECOND
        limit = MIN_HYPOTHESIS_TOKENS + math.ceil(seconds * MAX_TOKENS_PER_SECOND)
    room = min(limit, MAX_HYPOTHESIS_TOKENS) - len(utterance.kept)
    if room <= 0:
        guards.note("hypothesis_length")
        return None
    return GenerationRequest(
        encoded.states,
        utterance.prefix,
        utterance.draft[:room] if options.beam_size == 1 else (),
        room,
        forbid_end=policy.forbids_end_while_reading and not final,
        beam_size=options.beam_size,
        attention_layer=options.attention_layer,
        attention_heads=options.attention_heads,
        all_hypotheses=policy.reads_beam and not final,
        prefix_attention=options.history_selection is not None and not final,
    )


def _decision(policy: DecisionPolicy, heard: Heard, hypothesis: Hypothesis) -> Decision:
    decision = policy.decide(heard, hypothesis)
    token_count = len(hypothesis.tokens)
    if isinstance(decision, Decision):
        count = decision.new_token_count
        if type(count) is int and 0 <= count <= token_count:
            return decision
    raise InternalError(
        f"policy.{policy.name}: decide returned {shown(decision)}; allowed: a Decision with "
        f"new_token_count from 0 to {token_count}, the tokens of the hypothesis"
    )
