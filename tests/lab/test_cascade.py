"""Captions as source words: when each goes on, and how late what is made of it is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from earvoice.cli.command import CommandError
from earvoice.client.event import SegmentDone
from earvoice.encoder.text import read_words
from earvoice.systems.cascade import _word_times, caption_words, run
from tests.unit.evaluation.session import segment, utterance, word

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from earvoice.client.event import TranslationEvent

pytestmark = pytest.mark.torch


def test_what_must_run_first_is_told(tmp_path: Path) -> None:
    """The text model is that of another system."""
    options = argparse.Namespace(data=tmp_path, work=tmp_path)
    with pytest.raises(
        CommandError, match=r"han-3 is not there: run python -m earvoice\.systems han"
    ):
        run(options)


async def _captions() -> AsyncIterator[TranslationEvent]:
    """Two utterances; a full stop comes with the first one's last segment."""
    stop = word(".", 2400.0, 2400.0, starts_word=False)
    for events in (
        segment(800.0, 1.0, word("to", 800.0, 800.0)),
        segment(1600.0, 1.0, word("be", 1600.0, 1600.0)),
        segment(2400.0, 1.0, stop),
        utterance(0, 0.0, 2300.0),
        segment(3200.0, 1.0, word("or", 3200.0, 3200.0)),
        [SegmentDone(1, 2, 4000.0, 1.0, 0.0, 0, 0)],
        utterance(1, 2300.0, 4000.0),
    ):
        for event in events:
            yield event


async def test_a_word_goes_on_when_it_is_whole() -> None:
    """With the next word's beginning, or at its utterance's end, which ends the sentence."""
    heard_ms: list[float] = []
    blocks = [block async for block in caption_words(_captions(), heard_ms)]
    words = [word for block in blocks for word in read_words(block)]
    assert words == ["to", "be.\n", "or\n"]
    assert heard_ms == [1600.0, 2400.0, 4000.0]


def test_a_word_is_there_with_its_last_piece() -> None:
    """A full stop of its own is no word."""
    pieces = [
        (word("sein", 0.0, 0.0), 1600.0),
        (word(".", 0.0, 0.0, starts_word=False), 2400.0),
        (word("oder", 0.0, 0.0), 4000.0),
    ]
    assert _word_times(pieces) == [2400.0, 4000.0]
