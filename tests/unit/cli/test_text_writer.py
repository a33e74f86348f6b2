"""Flowing text."""

import io

from earvoice.cli.text_writer import TextWriter
from earvoice.client.event import Committed, CommittedWord, EndOfUtterance, Tentative
from earvoice.client.options import TranslationOptions

END = EndOfUtterance(0, 0.0, 1000.0, "pause", "heard")


def released(*texts):
    """Return an event that releases these texts; a leading blank starts a word."""
    words = (CommittedWord(t.strip(), t[0] == " ", "de", 0, 0, 0, 0, 0, 0) for t in texts)
    return Committed(tuple(words), 0, b"")


def write(*events, width=80, **options):
    """Return what the events become."""
    output = io.StringIO()
    writer = TextWriter(output, TranslationOptions(("de",), **options), width)
    for event in events:
        writer.write(event)
    writer.close()
    return output.getvalue()


def test_an_utterance_is_a_line():
    """Words are joined as they start words or not; utterances without words leave no line."""
    first = (released(" Guten", " Tag"), released("."), END)
    assert write(*first, END, released(" Ja"), END) == "Guten Tag.\nJa\n"


def test_an_open_line_is_ended():
    """A session that failed does not leave the prompt behind the text."""
    assert write(released(" Guten")) == "Guten\n"


def test_the_transcript_follows_its_utterance():
    """When asked for, and when there is one."""
    assert write(released(" Ja"), END, transcript=True) == "Ja\n  < heard\n"


def test_a_tail_is_drawn_and_taken_back():
    """The text that stays is the same with and without tails."""
    shown = write(released(" Guten"), Tentative("Tag", "de", 0), released(" Morgen"), END)
    assert shown == "Guten \x1b[2mTag\x1b[0m\x1b[4D\x1b[K Morgen\n"


def test_a_tail_never_wraps():
    """It is cut at the right edge, since a wrapped one could not be erased."""
    assert "\x1b[2mabcd\x1b[0m" in write(Tentative("abcdefgh", "de", 0), width=6)
    assert write(released(" 12345"), Tentative("abc", "de", 0), width=6) == "12345\n"
