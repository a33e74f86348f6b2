"""What is counted in a text: words, or characters."""

from __future__ import annotations

from typing import Literal

Unit = Literal["word", "char"]

# Languages written without blanks between words.
_UNSPACED_LANGUAGES = ("zh", "ja")


def default_unit(language: str) -> Unit:
    """Return the unit of a language (BCP-47 tag; empty if nobody knows)."""
    return "char" if primary_language(language) in _UNSPACED_LANGUAGES else "word"


def primary_language(language: str) -> str:
    """Return the language of a tag, without script and region, in lower case."""
    return language.replace("_", "-").split("-")[0].lower()


def split_text(text: str, unit: Unit) -> list[str]:
    """Return the units of a text; blanks are none."""
    words = text.split()
    return words if unit == "word" else list("".join(words))


def count_units(text: str, unit: Unit, *, compatible: bool = False) -> int:
    """Return a reference's length.

    Args:
        text: the reference.
        unit: what to count.
        compatible: count as SimulEval and OmniSTEval do: a word between every two single blanks,
            so that double blanks count as words, and blanks as characters.
    """
    if not compatible:
        return len(split_text(text, unit))
    return len(text.split(" ")) if unit == "word" else len(text.strip())
