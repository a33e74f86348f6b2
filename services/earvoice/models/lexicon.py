"""Translations of rare words, from a table, mixed into what the network would write.

A small network has seen a word like "sharks" a few times and knows that an animal is meant; which
one, it does not know. Counting which words stand opposite each other in the same texts tells. At
each step, attention says which source word is being translated, and the word's translations share
the probability with what the network would write (Arthur 2016), the more the rarer the word is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from earvoice.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from earvoice.models.vocabulary import Vocabulary

WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
"""What the table calls a word, in every language."""
MOST_SHARE, HALF_SHARE_TIMES = 0.7, 30
"""Share that the translations of a word get if it is very rare, and how often a word of half that
share stands in the texts. Chosen by BLEU of the dev split's texts."""
LEAST_ATTENTION = 0.05
"""A source word that gets less of the attention is not being translated."""
FIRST_PIECE = 2
"""Place of a text's first piece, after a start and a language."""
SENTENCE_ENDS = (".", "?", "!", ":")
MOST_IN_ALL = 1.05
"""Shares add up to 1, or a little more by rounding."""
MOST_SURE = 1 - 1e-6
"""Highest probability that a word is the table's."""
LEAST_PROBABILITY = 1e-12
LEAST_SHARE = 1e-3
"""Below this probability of being the table's, a word counts as the network's."""


class Rest(NamedTuple):
    """What is still to be written of a translation.

    Attributes:
        word: which of the source words in the table it translates, counted from 0.
        pieces: none where the translation is complete.
    """

    word: int
    pieces: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class Entry:
    """A word of the table.

    Attributes:
        times: how often it stands in the texts.
        translations: with their shares, which add up to 1.
    """

    times: int
    translations: tuple[tuple[str, float], ...]

    @property
    def trust(self) -> float:
        """The share that its translations get where it has all of the attention."""
        return MOST_SHARE / (1 + self.times / HALF_SHARE_TIMES)


Table = dict[str, dict[str, Entry]]
"""By language, BCP-47, and by source word in lower case."""


def write_table(table: Table) -> bytes:
    return "".join(
        "\t".join(
            [language, word, str(entry.times)]
            + [field for text, share in entry.translations for field in (text, f"{share:.2g}")]
        )
        + "\n"
        for language, entries in sorted(table.items())
        for word, entry in sorted(entries.items())
    ).encode()


def read_table(content: bytes) -> Table:
    """Read what `write_table` has written.

    Raises:
        ModelError: a line is of another kind.
    """
    table: Table = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            language, word, times, *translations = line.decode().split("\t")
            shares = [float(share) for share in translations[1::2]]
            entry = Entry(int(times), tuple(zip(translations[::2], shares, strict=True)))
        except ValueError as error:
            raise _line_error(number, line) from error
        is_share = bool(shares) and min(shares) > 0 and sum(shares) <= MOST_IN_ALL
        if entry.times < 1 or not is_share or not all(translations):
            raise _line_error(number, line)
        table.setdefault(language, {})[word] = entry
    return table


def _line_error(number: int, line: bytes) -> ModelError:
    allowed = "language, word, how often it occurs, then each translation and its share"
    return ModelError(f"line {number} of the lexicon is {line!r}; allowed, with tabs: {allowed}")


@dataclass(frozen=True)
class Pending:
    """Where a hypothesis stands.

    Attributes:
        share: probability that the word that has been begun is the table's.
        rests: how it may go on then; weights add up to 1.
        written: source words of which the table's translation has been written.
        is_first: whether the next word begins a sentence.
    """

    share: float = 0.0
    rests: tuple[Rest, ...] = ()
    written: frozenset[int] = frozenset()
    is_first: bool = False


AT_THE_START = Pending(is_first=True)


class Lexicon:
    """The table, as the pieces of a vocabulary.

    Args:
        tokens: by language, the token that a translation into it begins with.
        device: where the network computes.
    """

    def __init__(
        self,
        table: Table,
        vocabulary: Vocabulary,
        tokens: Mapping[str, int],
        device: torch.device | str = "cpu",
    ) -> None:
        self._table = {tokens[language]: entries for language, entries in table.items()}
        self._vocabulary = vocabulary
        every = range(len(vocabulary))
        self.starts_word = tuple(map(vocabulary.starts_word, every))
        self.continues = tuple(vocabulary.text(index)[:1].isalnum() for index in every)
        """Which pieces go on with a word that has been begun."""
        neither = tuple(
            not (begins or goes_on)
            for begins, goes_on in zip(self.starts_word, self.continues, strict=True)
        )
        self.kinds = torch.tensor(
            [self.continues, self.starts_word, neither], dtype=torch.float32, device=device
        )
        """[3, V]: 1 for pieces that continue a word, begin one, or do neither, as marks; else 0."""

    def words_of(self, source: Sequence[int], tokens: Sequence[int]) -> SourceWords:
        """Look up every word of a source text, given as its pieces.

        Args:
            tokens: what every hypothesis begins with, the second a language's.
        """
        entries = self._table.get(tokens[1], {}) if len(tokens) > 1 else {}
        places: list[list[int]] = []
        for place, piece in enumerate(source):
            if self._vocabulary.is_silent(piece):
                continue
            if self.starts_word[piece] or not places:
                places.append([place])
            elif any(map(str.isalnum, self._vocabulary.text(piece))):
                places[-1].append(place)  # not a mark: the network looks there for its own
        found = []
        for own in places:
            words = WORD.findall(self._vocabulary.decode(source[place] for place in own).lower())
            entry = entries.get(words[0]) if len(words) == 1 else None
            if entry is not None:
                found.append((own, self._translations(entry)))
        return SourceWords(self, found)

    def begins_a_sentence(self, token: int, *, before: bool) -> bool:
        """Whether a word that follows this token begins a sentence.

        Args:
            before: whether a word in the token's place would.
        """
        text = self._vocabulary.text(token)
        if any(map(str.isalnum, text)):
            return False
        return before or text.endswith(SENTENCE_ENDS)

    def _translations(self, entry: Entry) -> list[Translation]:
        return [
            Translation(
                tuple(self._vocabulary.encode(text)),
                tuple(self._vocabulary.encode(text[0].upper() + text[1:])),
                share * entry.trust,
            )
            for text, share in entry.translations
        ]


class Translation(NamedTuple):
    """One of a word's translations in the table.

    Attributes:
        pieces: of the word within a sentence.
        first: of the word where it begins one.
    """

    pieces: tuple[int, ...]
    first: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class SourceWords:
    """The words of a source text that are in the table.

    Attributes:
        found: each word's places among the text's pieces, and its translations; their weights add
            up to the word's trust.
    """

    lexicon: Lexicon
    found: list[tuple[list[int], list[Translation]]]

    def last_word(self, tokens: Sequence[int]) -> tuple[int, Pending]:
        """Find the last word of a text that is given, of which more may follow.

        Args:
            tokens: a start, a language, and the text.

        Returns:
            The place of its first piece, and where the hypothesis stands before that.
        """
        lexicon = self.lexicon
        place = len(tokens) - 1
        while place > FIRST_PIECE and not lexicon.starts_word[tokens[place]]:
            place -= 1
        place = max(place, min(FIRST_PIECE, len(tokens)))
        text = tuple(tokens[:place])
        ends = [i for i in range(FIRST_PIECE, place) if not lexicon.continues[tokens[i]]]
        ends.append(place)
        written = set()
        for word, (_, translations) in enumerate(self.found):
            spelled = [pieces for own in translations for pieces in (own.pieces, own.first)]
            found = (end for end in ends if any(text[:end][-len(p) :] == p for p in spelled))
            if (end := next(found, None)) is not None:
                # Each word that is written stands for one of the source's.
                ends.remove(end)
                written.add(word)
        is_first = True
        for token in text[FIRST_PIECE:]:
            is_first = self.lexicon.begins_a_sentence(token, before=is_first)
        return place, Pending(written=frozenset(written), is_first=is_first)

    def mixed(self, logits: torch.Tensor, attention: torch.Tensor, pending: Pending) -> Mixture:
        """Mix the table into the logits, [V], of a step whose attention to the source is [P]."""
        written = pending.written.union(rest.word for rest in pending.rests if not rest.pieces)
        weights = attention.tolist()
        proposed: list[Rest] = []
        for word, (places, translations) in enumerate(self.found):
            attended = sum(weights[place] for place in places)
            if word not in written and attended >= LEAST_ATTENTION:
                proposed += [
                    Rest(word, own.first if pending.is_first else own.pieces, attended * own.weight)
                    for own in translations
                ]
        return Mixture(logits, self.lexicon, proposed, pending)


class Mixture:
    """What comes next, by the network and by the table.

    Attributes:
        scores: [V] log-probabilities.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        lexicon: Lexicon,
        proposed: Sequence[Rest],
        pending: Pending,
    ) -> None:
        """Mix them.

        Args:
            proposed: words that may come next; their weights are at most 1 in all.
        """
        self._pending, self._lexicon = pending, lexicon
        self._lexical: list[Rest] = []
        if not proposed and not pending.rests:
            self.scores = logits.log_softmax(-1)
            return
        share = min(pending.share, MOST_SURE)
        ended = share * sum(rest.weight for rest in pending.rests if not rest.pieces)
        taken = sum(rest.weight for rest in proposed)
        _, begins, neither = (lexicon.kinds @ logits.softmax(-1)).tolist()
        # Once the table's word is complete, the network says what comes after it.
        after_it = 1 - share + ended / max(begins + neither, LEAST_PROBABILITY)
        factors = torch.tensor([1 - share, (1 - taken) * after_it, after_it], device=logits.device)
        self.scores = logits.log_softmax(-1) + factors.log() @ lexicon.kinds
        for rests, whole in ((pending.rests, share), (proposed, begins * after_it)):
            weighed = (rest._replace(weight=whole * rest.weight) for rest in rests if rest.pieces)
            self._lexical += [rest for rest in weighed if rest.weight > 0]
        added: dict[int, float] = {}
        for rest in self._lexical:
            added[rest.pieces[0]] = added.get(rest.pieces[0], 0.0) + rest.weight
        if added:
            weights = torch.tensor([*added.values()], device=logits.device).log()
            self.scores[[*added]] = self.scores[[*added]].logaddexp(weights)

    def after(self, token: int) -> Pending:
        """Where the hypothesis stands once this token has been chosen."""
        pending = self._pending
        written = pending.written
        if not self._lexicon.continues[token]:
            written = written.union(rest.word for rest in pending.rests if not rest.pieces)
        begun = [rest for rest in self._lexical if rest.pieces[0] == token]
        total = sum(rest.weight for rest in begun)
        share = total / float(self.scores[token].exp()) if begun else 0.0
        if share < LEAST_SHARE:
            is_first = self._lexicon.begins_a_sentence(token, before=pending.is_first)
            return Pending(written=written, is_first=is_first)
        rests = [Rest(word, pieces[1:], weight / total) for word, pieces, weight in begun]
        return Pending(min(share, 1.0), tuple(rests), written)


def mixtures_along(
    words: SourceWords,
    logits: torch.Tensor,
    attention: torch.Tensor,
    tokens: Sequence[int],
    pending: Pending,
) -> list[Mixture]:
    """Mix rows of logits, [n, V], with attention [n, P], after which these tokens follow.

    Args:
        tokens: n of them, or n - 1.
        pending: where the first row stands.
    """
    mixtures: list[Mixture] = []
    for index, (row, weights) in enumerate(zip(logits, attention, strict=True)):
        mixtures.append(words.mixed(row, weights, pending))
        if index < len(tokens):
            pending = mixtures[-1].after(tokens[index])
    return mixtures
