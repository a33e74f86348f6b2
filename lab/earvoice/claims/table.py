"""Markdown tables, and numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from earvoice.claims.answer import Finding
from earvoice.evaluation.resampling import Estimate

MISSING = "-"
_DECIMALS = {"BLEU": 1, "ms": 0, "s": 2, "share": 3, "rho": 2}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, ruler, *rows)]


def with_interval(estimate: Estimate | None, unit: str) -> str:
    """Return a number with its 95 % interval."""
    if estimate is None:
        return MISSING
    decimals = _DECIMALS[unit]
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (number(it, decimals) for it in numbers)
    return f"{value} [{low}, {high}]"


def describe_finding(finding: Finding) -> str:
    """Return a finding's number and what it says, or why there is none."""
    if finding.estimate is None:
        return f"{finding.answer.value} {finding.where}".rstrip()
    unit = "" if finding.unit == "rho" else f" {finding.unit}"
    where = f" {finding.where}" if finding.where else ""
    return f"{with_interval(finding.estimate, finding.unit)}{unit}{where}: {finding.answer.value}"


def number(value: float, decimals: int) -> str:
    """Return a rounded number; never a minus before zeros, a dash for one that is unknown."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return MISSING
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text
