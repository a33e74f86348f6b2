"""One utterance: what is committed, and what may follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from earvoice.policy.decisions.base import DecisionPolicy, Hypothesis, Token
from earvoice.policy.evidence import Evidence
from earvoice.policy.history import ForgottenHistory
from earvoice.policy.resume.snapshot import HeldPiece, UtteranceSnapshot
from earvoice.policy.timeline import CommitTime
from earvoice.policy.token_origin import TokenOrigin, joined_origin
from earvoice.policy.words import CommittedToken, Word, WordAssembler

LOOPING_SEGMENTS = 3
"""After so many segments in which a loop let nothing through, none will."""


class Utterance:
    """The unit of reset.

    Args:
        index: from 0.
        start_sample: where it begins, counted from the session's first sample.
        policy: fresh.

    Attributes:
        begin_sample: where it began.
        start_sample: where the audio that is kept of it begins.
        kept: committed tokens that are kept, without attention: the forced prefix.
        draft: the uncommitted tail of the last hypothesis.
        sent_sample: audio before this has been sent to the encoder.
        needs_reset: whether the encoder still holds other audio: an utterance's before, or what
            has been forgotten of this one.
        segment_index: the segment worked on last, 0 for none.
        written_token_count: tokens committed, forgotten ones included.
        spoken_for_sample: committed tokens attend to audio up to here.
        is_closed: whether an end of sentence has been committed.
    """

    def __init__(self, index: int, start_sample: int, policy: DecisionPolicy) -> None:
        self.index = index
        self.begin_sample = start_sample
        self.start_sample = start_sample
        self.policy = policy
        self.kept: list[Token] = []
        self.draft: list[int] = []
        self.sent_sample = start_sample
        self.needs_reset = (index, start_sample) != (0, 0)
        self.segment_index = 0
        self.spoken_for_sample = start_sample
        self.is_closed = False
        self._looping_segment_count = 0
        self._word_end_samples: list[int] = []
        self._written_word_count = 0
        self.written_token_count = 0
        self._assembler: WordAssembler[TokenOrigin] = WordAssembler()

    @property
    def prefix(self) -> tuple[int, ...]:
        """The forced prefix's token ids."""
        return tuple(token.token_id for token in self.kept)

    @property
    def committed_word_count(self) -> int:
        """Words committed that attend to the audio which is kept."""
        return len(self._word_end_samples)

    def commit(
        self,
        hypothesis: Hypothesis,
        new_token_count: int,
        evidence: Evidence,
        commit_time: CommitTime,
        *,
        flush: bool,
    ) -> list[Word[TokenOrigin]]:
        """Commit the first new tokens of a hypothesis and return the words that are complete.

        The rest of the hypothesis becomes the draft.

        Args:
            hypothesis: starts with ``prefix``.
            new_token_count: tokens to commit.
            evidence: of the revision that the hypothesis attends to.
            commit_time: now.
            flush: whether the last word is complete.
        """
        tokens = hypothesis.tokens[:new_token_count]
        committed = [
            CommittedToken(token, self._origin(token, evidence, commit_time)) for token in tokens
        ]
        self.kept += [replace(token, attention=()) for token in tokens]
        self.draft = [token.token_id for token in hypothesis.tokens[new_token_count:]]
        self._word_end_samples += [
            item.origin.source_end_sample for item in committed if item.token.starts_word
        ]
        self._written_word_count += sum(token.starts_word for token in tokens)
        self.written_token_count += len(tokens)
        self.spoken_for_sample = max(
            [self.spoken_for_sample, *(item.origin.source_end_sample for item in committed)]
        )
        return self._assembler.commit(committed, flush=flush)

    def note_commit(self, new_token_count: int, guard: str) -> None:
        """Take note of what is left of a commit that a policy decided on.

        Args:
            new_token_count: behind the guards and the word border.
            guard: that cut it; empty when none did.
        """
        if new_token_count:
            self._looping_segment_count = 0
        elif guard == "loop":
            self._looping_segment_count += 1

    @property
    def loops(self) -> bool:
        """Whether the committed text holds the model in a loop that more audio does not end.

        Each hypothesis must begin with that text, so nothing would ever pass again.
        """
        return self._looping_segment_count >= LOOPING_SEGMENTS

    @property
    def forgotten_word_count(self) -> int:
        """Words committed for audio that has been forgotten.

        They stand for the source words in it: how far the text is behind is then told from the
        audio that is kept, and errors of counting do not add up over an endless utterance.
        """
        return self._written_word_count - len(self._word_end_samples)

    def forget(self, history: ForgottenHistory) -> None:
        """Forget committed tokens, and the audio before a position."""
        del self.kept[: history.token_count]
        self.policy.forget_prefix(history.token_count)
        if history.start_sample <= self.start_sample:
            return
        self.start_sample = self.sent_sample = history.start_sample
        self.spoken_for_sample = max(self.spoken_for_sample, self.start_sample)
        self._word_end_samples = [end for end in self._word_end_samples if end > self.start_sample]
        self.needs_reset = True

    def snapshot(self) -> UtteranceSnapshot:
        """Return the utterance as it is after a commit: whatever was committed was no loop."""
        return UtteranceSnapshot(
            self.index,
            self.begin_sample,
            self.start_sample,
            self.segment_index,
            tuple(self.kept),
            tuple(self.draft),
            tuple(self._word_end_samples),
            self._written_word_count,
            self.written_token_count,
            self.spoken_for_sample,
            self.is_closed,
            _held_piece(self._assembler.held),
            self.policy.snapshot(),
        )

    @classmethod
    def restored(cls, snapshot: UtteranceSnapshot, policy: DecisionPolicy) -> Utterance:
        """Return the utterance that a snapshot was taken of; its audio is to be sent again.

        Args:
            snapshot: taken between two segments.
            policy: fresh, with the same parameters.

        Raises:
            ValueError: the policy's memory is another policy's.
        """
        utterance = cls(snapshot.index, snapshot.start_sample, policy)
        if not snapshot.segment_index:
            return utterance
        policy.restore(snapshot.policy)
        utterance.begin_sample = snapshot.begin_sample
        utterance.segment_index = snapshot.segment_index
        utterance.kept = list(snapshot.kept)
        utterance.draft = list(snapshot.draft)
        utterance._word_end_samples = list(snapshot.word_end_samples)
        utterance._written_word_count = snapshot.written_word_count
        utterance.written_token_count = snapshot.written_token_count
        utterance.spoken_for_sample = snapshot.spoken_for_sample
        utterance.is_closed = snapshot.is_closed
        held = snapshot.held
        if held is not None:
            piece = CommittedToken(_piece_token(held), held.origin)
            utterance._assembler = WordAssembler([piece])
        return utterance

    def switch_policy(self, policy: DecisionPolicy) -> None:
        """Go on with another policy; the same one with other parameters keeps its memory."""
        if policy.name == self.policy.name:
            policy.restore(self.policy.snapshot())
        elif self.segment_index:
            policy.take_over(self._written_word_count, self.written_token_count)
        self.policy = policy

    def _origin(self, token: Token, evidence: Evidence, commit_time: CommitTime) -> TokenOrigin:
        # Attention piles up on the last state whatever the token (Papi 2023, figure 2).
        row = token.attention[:-1] or token.attention
        state = max(range(len(row)), key=row.__getitem__)
        start, end = evidence.span(state, self.start_sample)
        return TokenOrigin(start, end, commit_time)


def _held_piece(held: Sequence[CommittedToken[TokenOrigin]]) -> HeldPiece | None:
    """Return tokens of one word as one piece: that they were several matters no more."""
    if not held:
        return None
    text = b"".join(item.token.text for item in held)
    return HeldPiece(text, held[0].token.starts_word, joined_origin([item.origin for item in held]))


def _piece_token(held: HeldPiece) -> Token:
    # It is in the forced prefix already: its id is asked for no more.
    return Token(-1, held.text, held.starts_word, ())


def tail_text(tokens: Sequence[Token]) -> str:
    """Return the text of tokens that may still change."""
    pieces = [b" " + token.text if token.starts_word else token.text for token in tokens]
    return b"".join(pieces).decode("utf8", errors="replace").strip()
