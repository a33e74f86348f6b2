"""The pieces of a tokenizer in the order that the decoder service relies on."""

from __future__ import annotations

import dataclasses
from typing import Any

from earvoice.models.vocabulary import EOS, WORD_START


@dataclasses.dataclass(frozen=True)
class PieceTable:
    """What each of our token ids stands for.

    The decoder service never chooses the ids 0 and 1 and ends with 2. In the vocabularies of
    Speech2Text and mBART that is so by itself. In Whisper's, where these are ordinary pieces, two
    tokens of the prompt and the end move to the front, and all others behind them.
    """

    order: tuple[int, ...]
    """By our id: the tokenizer's."""
    texts: tuple[bytes, ...]
    """UTF-8 by our id, without a word's blank; empty for what writes nothing."""
    starts_word: tuple[bool, ...]

    def our_id(self, theirs: int) -> int:
        """Our id of one of the tokenizer's."""
        return self.order.index(theirs)


def piece_table(tokenizer: Any, size: int, end: int, never_chosen: tuple[int, int]) -> PieceTable:
    """Read a tokenizer.

    Args:
        tokenizer: of `transformers`.
        size: how many ids the network knows; those that the tokenizer does not write nothing.
        end: the tokenizer's id of the end of sentence.
        never_chosen: two of its ids that are never generated.
    """
    front = [*never_chosen, end]
    order = (*front, *(index for index in range(size) if index not in set(front)))
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
    silent = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *front}
    byte_of = _byte_alphabet() if WORD_START not in "".join(pieces[EOS:]) else None
    texts, starts = [], []
    for theirs in order:
        piece = pieces[theirs] if theirs < len(pieces) and theirs not in silent else ""
        written = _written(piece, byte_of)
        starts.append(written.startswith(b" "))
        texts.append(written.removeprefix(b" "))
    return PieceTable(order, tuple(texts), tuple(starts))


def _written(piece: str, byte_of: dict[str, int] | None) -> bytes:
    """What a piece writes, a leading blank where it begins a word."""
    if byte_of is not None:
        return bytes(byte_of[character] for character in piece)
    return piece.replace(WORD_START, " ").encode()


def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level pieces: printable ones for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}
