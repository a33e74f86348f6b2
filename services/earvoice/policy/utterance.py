"""One utterance: what is committed, and what may follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import SequenceMatcher

from earvoice.policies.base import DecisionPolicy, Hypothesis, Snapshot, Token
from earvoice.policy.evidence import Evidence
from earvoice.policy.stream_options import Confidence
from earvoice.policy.words import CommitTime, Word, join_pieces, written_text
from earvoice.runtime.punctuation import CLOSING_MARKS, SENTENCE_ENDS

LOOPING_SEGMENTS = 3
"""After this many segments in which a loop blocked every commit, none will get through."""
AGREEING_LIKENESS, OPENING_LIKENESS, DIFFERING_LIKENESS = 0.8, 0.55, 0.45
"""Thresholds of `likeness`: from the first on, encoder and decoder hear the same, whatever the
confidence of the words; from the second on, a few words may open an utterance; below the third they
hear different things, as when nobody speaks the language."""
FEW_LETTER_COUNT = 8
"""Up to this many are not compared, only counted: see `agreement`."""
LEAST_HEARD_SHARE = 0.45
"""Letters that the encoder has heard, per letter written, with which an utterance goes on."""
LEAST_LETTER_COUNT, MOST_LETTER_COUNT = 4, 200
"""Fewest that can be compared before a number; most that are compared, however long the text."""
_FIGURES = re.compile(r"\S*\d")


@dataclass
class UtteranceState:
    """An utterance's state between two segments, taken after a release of words.

    Attributes:
        start_sample: where its kept audio begins.
        segment_index: the last segment processed, 0 for none.
        kept: committed tokens that are not forgotten, without attention: the forced prefix.
        word_end_samples: where the audio of each committed word ends, for words that attend to
            kept audio.
        written_word_count: words committed, forgotten ones included; likewise for tokens and for
            letters, which figures are among.
        spoken_for_sample: committed tokens attend to audio up to here.
        is_closed: whether an end of sentence has been committed.
        held: committed text that waits for the end of its word; None for nothing.
        memory: what its policy remembers.
        is_understood: whether it has been understood. Before that its words are held back, and
            after it only while the encoder hears too little of them.
        is_in_sentence: whether its text ends within a sentence, as far as it has been heard.
    """

    index: int = 0
    begin_sample: int = 0
    start_sample: int = 0
    segment_index: int = 0
    kept: tuple[Token, ...] = ()
    draft: tuple[int, ...] = ()
    word_end_samples: tuple[int, ...] = ()
    written_word_count: int = 0
    written_token_count: int = 0
    written_letter_count: int = 0
    spoken_for_sample: int = 0
    is_closed: bool = False
    held: Word | None = None
    memory: Snapshot = field(default_factory=dict)
    is_understood: bool = False
    is_in_sentence: bool = False


class Utterance(UtteranceState):
    """The unit of reset: an utterance in progress, whose audio is to be sent from its start on.

    Attributes:
        sent_sample: audio before this has been sent to the encoder.
        needs_reset: whether the encoder still holds other audio: the previous utterance's, or
            forgotten audio of this one.
        loops: whether the committed text keeps the model in a loop that more audio does not end:
            every hypothesis must begin with that text, so nothing would ever pass again.
    """

    def __init__(self, state: UtteranceState, policy: DecisionPolicy) -> None:
        super().__init__(**vars(state))
        if state.segment_index:
            policy.restore(state.memory)
        self.policy = policy
        self.sent_sample = self.start_sample
        self.needs_reset = (self.index, self.start_sample) != (0, 0)
        self.spoken_for_sample = max(self.spoken_for_sample, self.start_sample)
        self.loops = False
        self._looping_segment_count = 0
        self._held_back: list[Word] = []
        self._translated: list[Word] = []

    def snapshot(self) -> UtteranceState:
        """Return the state after a release, when no loop is being counted."""
        state = {field.name: getattr(self, field.name) for field in fields(UtteranceState)}
        return UtteranceState(**state | {"memory": self.policy.snapshot()})

    @property
    def shows_tail(self) -> bool:
        """Whether what may follow may be told: its words would not be held back."""
        return self.is_understood and not self._held_back

    @property
    def prefix(self) -> tuple[int, ...]:
        return tuple([token.token_id for token in self.kept])

    @property
    def not_understood(self) -> tuple[int, int] | None:
        """Start and end of the audio that the words held back attend to."""
        if not self._held_back:
            return None
        return (
            min(word.source_start_sample for word in self._held_back),
            max(word.source_end_sample for word in self._held_back),
        )

    def commit(
        self,
        hypothesis: Hypothesis,
        new_token_count: int,
        evidence: Evidence,
        now: CommitTime,
        delay_samples: int,
        confidence: Confidence,
        *,
        flush: bool,
        final: bool,
        guard: str = "",
    ) -> list[Word]:
        """Commit the first new tokens of a hypothesis and return the words that this releases.

        The rest of the hypothesis becomes the draft. Until the utterance is understood, words are
        held back.

        Args:
            new_token_count: tokens to commit, after the guards and the word border.
            evidence: of the revision that the hypothesis attends to.
            flush: whether the last word is complete.
            final: whether the utterance ends with this commit.
        """
        tokens = hypothesis.tokens[:new_token_count]
        self.draft = tuple(token.token_id for token in hypothesis.tokens[new_token_count:])
        pieces = [self.held] if self.held is not None else []
        for token in tokens:
            start, end = evidence.span(evidence.attended(token.attention), self.start_sample)
            piece = Word(token.text, token.starts_word, self.index, start, end, now)
            pieces.append(replace(piece, log_probability=token.log_probability))
            kept = Token(token.token_id, token.text, token.starts_word, (), token.log_probability)
            self.kept += (kept,)
            self.spoken_for_sample = max(self.spoken_for_sample, end)
            if token.starts_word:
                self.word_end_samples += (end,)
                self.written_word_count += 1
            self.written_letter_count += len(_letters(token.text.decode(errors="replace")))
        self.written_token_count += len(tokens)
        if tokens:
            self._looping_segment_count = 0
        elif guard in ("loop", "echo"):
            self._looping_segment_count += 1
        self.loops = self._looping_segment_count >= LOOPING_SEGMENTS
        words, self.held = join_pieces(pieces, flush=flush)
        words = [*self._held_back, *words]
        if hypothesis.source:
            self._translated = [
                Word(token.text, token.starts_word, self.index, 0, 0, now, token.log_probability)
                for token in hypothesis.source
            ]
        if self.is_understood:
            releases = self._is_heard(evidence, confidence, final=final)
        else:
            releases = self._understands(words, evidence, confidence, final=final)
        if not releases:
            self._held_back = words
            return []
        self.is_understood = True
        self._held_back = []
        if words:
            # A snapshot follows, which has no count: `snapshot`.
            self._looping_segment_count, self.loops = 0, False
        return [
            replace(
                word,
                confidence=confidence.of(word.log_probability),
                delay_samples=delay_samples,
                elapsed_ms=now.elapsed_ms,
                hold_ms=now.moment_ms - word.committed.moment_ms,
            )
            for word in words
        ]

    def note_end(self, hypothesis: Hypothesis) -> None:
        """Note whether a hypothesis, or the text that it translates, ends within a sentence.

        A closed utterance is in none: nothing more will be written of it.
        """
        written = b"".join(token.text for token in hypothesis.source or hypothesis.tokens)
        text = written.decode(errors="replace").rstrip(CLOSING_MARKS + " ")
        if text or self.is_closed:
            self.is_in_sentence = not self.is_closed and not text.endswith(SENTENCE_ENDS)

    def _understands(
        self, words: Sequence[Word], evidence: Evidence, confidence: Confidence, *, final: bool
    ) -> bool:
        """Whether the words to be released, or those that they translate, are understood."""
        if self._translated:
            # The last word may be unfinished.
            heard, _ = join_pieces(self._translated, flush=final)
            words = [word for word in heard if word.is_spoken]
        if not words:
            return False
        sure = sum(confidence.of(word.log_probability) for word in words)
        # One word says little, yet would open the utterance for all that follow: wait for the next.
        is_alone = sum(word.starts_word for word in words) == 1 and not final
        waits = is_alone and confidence.least > 0
        is_sure = sure >= confidence.least * len(words) and not waits
        transcript = self._heard(evidence, confidence, final=final)
        if transcript is None:
            return is_sure
        if not final:
            return is_sure and likeness(words, transcript) >= OPENING_LIKENESS
        if is_sure and agreement(words, transcript) >= DIFFERING_LIKENESS:
            return True
        # The surer the words are, the less alike they need to be.
        least = max(DIFFERING_LIKENESS, AGREEING_LIKENESS - sure / len(words) * 2 / 3)
        return likeness(words, transcript, whole=True) >= least

    def _is_heard(self, evidence: Evidence, confidence: Confidence, *, final: bool) -> bool:
        """Whether the encoder, too, hears an utterance go on that is understood so far."""
        transcript = self._heard(evidence, confidence, final=final)
        if transcript is None:
            return True
        count = len(_letters(_text_of(self._translated))) or self.written_letter_count
        return count <= FEW_LETTER_COUNT or len(_letters(transcript)) >= LEAST_HEARD_SHARE * count

    def _heard(self, evidence: Evidence, confidence: Confidence, *, final: bool) -> str | None:
        """What the encoder heard; None where it is not compared, as when audio is forgotten."""
        transcript = evidence.source_transcript if final else evidence.partial_transcript
        is_told = bool(transcript) or evidence.hears_nothing
        if not confidence.compares or not is_told or self.start_sample > self.begin_sample:
            return None
        return transcript

    def forget(self, token_count: int, start_sample: int) -> None:
        """Forget committed tokens, and the audio before a position."""
        self.kept = self.kept[token_count:]
        self.policy.forget_prefix(token_count)
        if start_sample <= self.start_sample:
            return
        self.start_sample = self.sent_sample = start_sample
        self.spoken_for_sample = max(self.spoken_for_sample, self.start_sample)
        self.word_end_samples = tuple(end for end in self.word_end_samples if end > start_sample)
        self.needs_reset = True

    def switch_policy(self, policy: DecisionPolicy) -> None:
        """Go on with another policy; the same one with other parameters keeps its memory."""
        if policy.name == self.policy.name:
            policy.restore(self.policy.snapshot())
        elif self.segment_index:
            policy.take_over(self.written_word_count, self.written_token_count)
        self.policy = policy


def agreement(words: Sequence[Word], transcript: str) -> float:
    """Return `likeness`; for few letters, how many were heard per letter written, right or wrong.

    For "Bye." the encoder may hear "f hie"; for a word of another language it hears nothing.
    """
    count = len(_letters(_text_of(words)))
    if not 0 < count <= FEW_LETTER_COUNT:
        return likeness(words, transcript)
    return len(_letters(transcript)) / count


def _text_of(words: Sequence[Word]) -> str:
    return written_text((word.starts_word, word.utf8) for word in words)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def likeness(words: Sequence[Word], transcript: str, *, whole: bool = False) -> float:
    """Return twice the letters that both texts share in order, divided by the letters of both.

    Mean confidence says little about one or two words, or about input unlike the training data;
    whether decoder and encoder independently hear the same says more. The decoder writes numbers
    in figures, the encoder spells them: unless `whole`, only text before the first is compared.

    Args:
        whole: whether the transcript ends where the words do. Otherwise it is cut to as many
            letters as they have, and where a number leaves too few of these, 1 is returned if
            anything was heard.
    """
    text = _text_of(words)
    before = _FIGURES.split(text, maxsplit=1)[0]
    ours, theirs = (
        _letters(each)[:MOST_LETTER_COUNT] for each in (text if whole else before, transcript)
    )
    if not whole:
        if before != text and len(ours) < LEAST_LETTER_COUNT:
            return float(bool(theirs))
        theirs = theirs[: len(ours)]
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio() if ours or theirs else 0.0
