"""Guards: limits on what may be committed. They outrank every policy and the final commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from earvoice.policies.base import Hypothesis, Token, longest_common_prefix_tokens
from earvoice.policies.wait_k import WORD_DURATION_MS
from earvoice.policy.evidence import Evidence

MINIMUM_LABEL_COUNT = 2
MINIMUM_LETTER_COUNT = 2
"""Of the transcript of a whole utterance: "no" may be a single label."""
MINIMUM_FRAME_COUNT = 20
WORDS_PER_SOURCE_WORD = 2
ADDITIONAL_WORD_COUNT = 3
LOOP_REPETITION_COUNT = 3
"""People say a word or two this often; more is a loop."""
UNHEARD_REPETITION_COUNT = 2
"""The same where the CTC labels show no repetition."""
PHRASE_REPETITION_COUNT = 2
"""The same for a phrase, which has `PHRASE_TOKENS` tokens or more."""
PHRASE_TOKENS = 4
LONGEST_LOOP_TOKENS = 16
FRAME_MS = 10


class Guards:
    """Cuts commits and counts how often each guard did.

    Attributes:
        noted: names of the guards that cut, in order, until the caller clears it.
    """

    def __init__(self, hits: Mapping[str, int] | None = None) -> None:
        self.hits: Counter[str] = Counter(hits)
        self.noted: list[str] = []

    def allow(
        self,
        evidence: Evidence,
        hypothesis: Hypothesis,
        new_token_count: int,
        committed_word_count: int,
        spoken_for_sample: int,
        *,
        final: bool = False,
    ) -> tuple[int, str]:
        """Say how many of the new tokens may be committed, at most ``new_token_count``.

        Args:
            committed_word_count: words committed for the same audio before.
            spoken_for_sample: committed tokens attend to audio up to here.
            final: whether the utterance ends with these tokens.

        Returns:
            How many, and the name of the guard that cut the rest, empty when none did.
        """
        if new_token_count <= 0:
            return 0, ""
        limits = {
            "evidence": 0 if self.lacks_evidence(evidence) else new_token_count,
            "length": _count_within_length(
                evidence, hypothesis, new_token_count, committed_word_count
            ),
            "loop": _count_before_loop(evidence, hypothesis, new_token_count),
        }
        strictest = min(limits, key=limits.__getitem__)
        count, guard = limits[strictest], ""
        if count < new_token_count:
            self.note(guard := strictest)
        before_echo = _count_before_echo(
            evidence, hypothesis, count, spoken_for_sample, final=final
        )
        if before_echo < count:
            self.note(guard := "echo")
        return before_echo, guard

    @staticmethod
    def lacks_evidence(evidence: Evidence) -> bool:
        """Say whether too little was heard for any commit.

        A model without a CTC head gives no labels: enough frames of speech must do.
        """
        letters = evidence.source_transcript.replace(" ", "")
        return (
            not evidence.voice_activity.has_speech
            or (
                evidence.has_labels
                and evidence.label_count < MINIMUM_LABEL_COUNT
                and len(letters) < MINIMUM_LETTER_COUNT
            )
            or evidence.frame_count < MINIMUM_FRAME_COUNT
        )

    def note(self, name: str) -> None:
        """Count a limit that was reached, here or elsewhere, such as the hypothesis's length."""
        self.hits[name] += 1
        self.noted.append(name)


def _count_within_length(
    evidence: Evidence, hypothesis: Hypothesis, new_token_count: int, committed_word_count: int
) -> int:
    """Keep at most twice the source words plus three."""
    heard = evidence.complete_word_count + evidence.has_partial_word
    if not heard and not evidence.has_labels:
        # No count: assume as many as an English speaker says in that time.
        heard = int(evidence.frame_count * FRAME_MS / WORD_DURATION_MS)
    room = WORDS_PER_SOURCE_WORD * heard + ADDITIONAL_WORD_COUNT - committed_word_count
    for index, token in enumerate(hypothesis.tokens[:new_token_count]):
        room -= token.starts_word
        if room < 0:
            return index
    return new_token_count


def _count_before_loop(evidence: Evidence, hypothesis: Hypothesis, new_token_count: int) -> int:
    """Keep what comes before the first surplus repetition of an n-gram.

    More than half of that repetition suffices, because a hypothesis may end inside it. Where the
    labels show no repetition, its first word suffices.
    """
    tokens = hypothesis.token_ids
    first = len(hypothesis.prefix)
    for end in range(first + 1, first + new_token_count + 1):
        for size in range(1, LONGEST_LOOP_TOKENS + 1):
            turns = LOOP_REPETITION_COUNT if size < PHRASE_TOKENS else PHRASE_REPETITION_COUNT
            surplus = size // 2 + 1
            begin = end - surplus - turns * size
            if begin >= 0 and tokens[begin + size : end] == tokens[begin : end - size]:
                return max(0, end - surplus - first)
            begin = end - 1 - UNHEARD_REPETITION_COUNT * size
            if (
                size < PHRASE_TOKENS
                and begin >= 0
                and tokens[begin + size : end] == tokens[begin : end - size]
                and hypothesis.tokens[end - 1 - first].starts_word
                and evidence.has_labels
                and not _hears_repetition(evidence)
            ):
                return end - 1 - first
    return new_token_count


def _hears_repetition(evidence: Evidence) -> bool:
    """Say whether labels repeat back to back: two or more of them, or one three times.

    One label that comes twice may be a double letter.
    """
    labels = [label for label, _ in groupby(evidence.ctc_labels) if label != evidence.blank_label]
    return any(
        labels[end - length + size : end] == labels[end - length : end - size]
        for end in range(3, len(labels) + 1)
        for size in range(1, end // 2 + 1)
        if (length := max(3, 2 * size)) <= end
    )


def _count_before_echo(
    evidence: Evidence,
    hypothesis: Hypothesis,
    new_token_count: int,
    spoken_for_sample: int,
    *,
    final: bool,
) -> int:
    """Keep what comes before an echo; arguments as for `Guards.allow`.

    A model that cannot end its sentence, or is given much audio at once, repeats a phrase while
    attending to no new audio. Words that were really said twice attend to later audio. Fewer
    tokens than a phrase count only if they repeat, with nothing else, to the utterance's end.
    """
    first = len(hypothesis.prefix)
    tokens = hypothesis.token_ids[: first + new_token_count]
    for index in range(new_token_count):
        if tokens[first + index] not in tokens[: first + index]:
            # True of nearly all tokens: one that is new cannot begin a repetition.
            continue
        few = final and hypothesis.tokens[index].starts_word
        again = _said_again(tokens, first + index, few=few)
        if again:
            places = _places(evidence, hypothesis.tokens[: index + again])
            if max(places[index:]) <= max([spoken_for_sample, *places[:index]]):
                return index
    return new_token_count


def _places(evidence: Evidence, tokens: Sequence[Token]) -> list[int]:
    """Return where the audio that each token attends to ends, in samples.

    Silence after the last speech counts as the end of speech: nothing was heard there.
    """
    ends = [evidence.span_end_samples[evidence.attended(token.attention)] for token in tokens]
    speech_end = evidence.voice_activity.speech_end_sample
    return [min(end, speech_end) for end in ends] if speech_end else ends


def _said_again(tokens: Sequence[int], place: int, *, few: bool) -> int:
    """Return how many tokens from a place on merely repeat earlier ones, 0 for none.

    A phrase may repeat anything before it; fewer tokens must be words and repeat back to back to
    the end: the figures of a number look alike and share their audio.

    Args:
        few: whether fewer tokens than a phrase count.
    """
    said, coming = tokens[:place], tokens[place:]
    starts = [it for it in range(place - PHRASE_TOKENS + 1) if said[it] == coming[0]]
    again = max((longest_common_prefix_tokens([said[it:], coming]) for it in starts), default=0)
    if again >= PHRASE_TOKENS:
        return again
    sizes = range(1, min(PHRASE_TOKENS, len(said) + 1, len(coming) + 1)) if few else ()
    turns = any(tokens[place - size : len(tokens) - size] == coming for size in sizes)
    return len(coming) if turns else 0
