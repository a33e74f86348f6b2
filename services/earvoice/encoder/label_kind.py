"""What a CTC label does to the words of the transcript."""

from __future__ import annotations

from enum import Enum, auto


class LabelKind(Enum):
    """What a label does to the words of the transcript."""

    SILENT = auto()
    """It writes nothing."""
    BORDER = auto()
    """The blank between two words, alone: the word before is over, the next has no letter yet."""
    START = auto()
    """It begins a word."""
    INNER = auto()
    """It goes on with a word."""
