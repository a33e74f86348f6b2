"""BLEU and chrF by sacreBLEU, and word errors."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.cli.command import CommandError, ExitCode
from earvoice.evaluation.instance import Unit, default_unit, primary_language, split_text

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

# sacreBLEU's default is for languages with blanks; these need a tokenizer of their own.
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_DEFAULT_TOKENIZER = "13a"


@dataclass(frozen=True)
class Quality:
    """BLEU and chrF2, 0 to 100, and word errors."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    wer: float
    """Word errors per hundred words of the references; for languages without blanks, characters."""
    wer_signature: str


def bleu_tokenizer(language: str) -> str:
    """Return sacreBLEU's tokenizer for a target language (BCP-47; empty: the default)."""
    return _TOKENIZERS.get(primary_language(language), _DEFAULT_TOKENIZER)


def bleu_metric(language: str, *, effective_order: bool = False) -> BLEU:
    """Return sacreBLEU's metric for a target language.

    Raises:
        CommandError: a package that it needs is not installed.
    """
    try:
        # Only quality needs this library, latency does not.
        from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415
    except ImportError as error:
        raise CommandError(
            f"{error.name} is not installed: pip install 'earvoice[lab]'", ExitCode.INPUT
        ) from error
    tokenizer = bleu_tokenizer(language)
    try:
        return BLEU(tokenize=tokenizer, effective_order=effective_order)
    except (ImportError, RuntimeError) as error:
        extra = primary_language(language)
        raise CommandError(
            f"tokenizer {tokenizer} is not installed: pip install 'sacrebleu[{extra}]'",
            ExitCode.INPUT,
        ) from error


def score_quality(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> Quality:
    """Score a corpus of detokenized texts; an empty hypothesis counts.

    Raises:
        CommandError: see `bleu_metric`.
    """
    bleu = bleu_metric(language)
    from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415

    chrf = CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Quality(
        bleu_score.score,
        str(bleu.get_signature()),
        chrf_score.score,
        str(chrf.get_signature()),
        100 * word_error_rate(hypotheses, references, language),
        f"{default_unit(language)}s, lower case, no punctuation, titles in full, "
        "figures as written",
    )


def word_error_rate(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> float:
    """Return the errors of all texts over the words of all references, 0 to above 1."""
    counts = word_error_counts(hypotheses, references, language)
    return sum(errors for errors, _ in counts) / max(1, sum(words for _, words in counts))


def word_error_counts(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> list[tuple[int, int]]:
    """Return each text's word errors, and the words of its reference."""
    unit = default_unit(language)
    wanted = [plain_words(reference, unit) for reference in references]
    return [
        (count_errors(plain_words(hypothesis, unit), words), len(words))
        for hypothesis, words in zip(hypotheses, wanted, strict=True)
    ]


_TITLES = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "prof": "professor"}
"""Titles are spoken in full, so the two forms count as equal (Radford 2022, appendix C)."""
# Not punctuation: a dot, comma or colon between digits, an apostrophe within a word.
_WORD = re.compile(r"[^\W_]+(?:(?:'|(?<=\d)[.,:](?=\d))[^\W_]+)*")


def plain_words(text: str, unit: Unit = "word") -> list[str]:
    """Return the words in lower case, without punctuation, titles in full, digits as written.

    Args:
        unit: for a language without blanks, characters are counted instead.
    """
    found: list[str] = _WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return split_text(" ".join(_TITLES.get(word, word) for word in found), unit)


def count_errors(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Return the least number of substitutions, insertions and deletions (Levenshtein)."""
    (last,) = deque(_rows(hypothesis, reference), maxlen=1)
    return last[-1]


def right_words(hypothesis: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Return for each word whether an alignment with fewest errors matches it to the same word."""
    rows = list(_rows(hypothesis, reference))
    right = [False] * len(hypothesis)
    i, j = len(hypothesis), len(reference)
    while i and j:
        same = hypothesis[i - 1] == reference[j - 1]
        if rows[i][j] == rows[i - 1][j - 1] + (not same):
            right[i - 1] = same
            i, j = i - 1, j - 1
        elif rows[i][j] == rows[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return right


def _rows(hypothesis: Sequence[str], reference: Sequence[str]) -> Iterator[list[int]]:
    """Yield, for each longer prefix of a hypothesis, its errors to every prefix of a reference."""
    row = list(range(len(reference) + 1))
    yield row
    for word in hypothesis:
        before, row = row, [row[0] + 1]
        for place, wanted in enumerate(reference):
            changed = before[place] + (word != wanted)
            row.append(min(changed, before[place + 1] + 1, row[place] + 1))
        yield row
