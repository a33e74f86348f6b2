"""What a log of translations is to the scorer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from earvoice.evaluation.clock import ElapsedClock
from earvoice.evaluation.instance import Instance
from earvoice.evaluation.text_unit import Unit, count_units


class LogError(Exception):
    """A log that cannot be read.

    Args:
        place: file, with the line if it is known.
        message: what is wrong, and what would be right.
    """

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


@dataclass(frozen=True)
class ReadingOptions:
    """What the person who scores knows of a log, and how to count.

    Attributes:
        unit: what the metrics count.
        compatible: count references as SimulEval does (see ``count_units``).
        references: in the order of the log's instances, for logs without; None if there are none.
        elapsed_clock: clock of the log's computation-aware times, for logs that do not say it.
    """

    unit: Unit = "word"
    compatible: bool = False
    references: tuple[str, ...] | None = None
    elapsed_clock: ElapsedClock | None = None

    def reference(self, position: int, logged: str | None = None) -> str | None:
        """Return an instance's reference: the one given, else the log's; None if it is empty."""
        text = logged if self.references is None else self.references[position]
        return text if text and text.strip() else None

    def reference_units(self, reference: str | None) -> int | None:
        """Return the length of a reference; None without one."""
        if reference is None:
            return None
        return count_units(reference, self.unit, compatible=self.compatible)

    def check_references(self, path: Path, instance_count: int) -> None:
        """Check that there is a reference for each instance, if there are any.

        Raises:
            LogError: there are more, or fewer.
        """
        if self.references is not None and len(self.references) != instance_count:
            raise LogError(
                str(path),
                f"{len(self.references)} references were given for {instance_count} instances",
            )


@dataclass(frozen=True)
class Log:
    """A log that was read.

    Attributes:
        format_name: whose format, with the version if it is known.
        instances: in the log's order.
        word_rule: when a word counts as released in it.
        notes: what a reader of the scores must know about it.
        ends_with_eos: the end of sentence is a unit (SimulEval 1.0).
    """

    format_name: str
    instances: tuple[Instance, ...]
    word_rule: str
    notes: tuple[str, ...] = ()
    ends_with_eos: bool = False
