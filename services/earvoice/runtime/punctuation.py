"""Marks that end sentences, in the scripts of the world's larger languages."""

from __future__ import annotations

SENTENCE_ENDS = tuple(".?!…。？！।؟۔")  # noqa: RUF001 - of other scripts
CLOSING_MARKS = "\"'”\N{RIGHT SINGLE QUOTATION MARK}»)]」』"
"""Quotes and brackets that may follow the end of a sentence."""
