"""Pieces of text and their ids, for the transcript and for the translation."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import sentencepiece

from earvoice.models.errors import ModelError

BOS = 0
PAD = 1
EOS = 2
"""End of sentence; it also starts every hypothesis."""
UNK = 3
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")

WORD_START = "▁"
"""SentencePiece's mark of a piece that begins a word."""


@cache
def byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in GPT-2's pieces: printable ones for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


class Vocabulary:
    """A SentencePiece model whose first four ids are `SPECIALS`, plus optional tags after it."""

    def __init__(self, model: bytes, tags: Sequence[str] = ()) -> None:
        """Load a vocabulary.

        Args:
            tags: silent pieces, such as language tags; those that the SentencePiece model does not
                have get the ids after its last, in this order.
        """
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            count = self._processor.GetPieceSize()
            own = tuple(self._processor.IdToPiece(index) for index in range(count))
        except (RuntimeError, UnicodeDecodeError) as error:
            message = f"the vocabulary of {len(model)} bytes is not a SentencePiece model: {error}"
            raise ModelError(message) from error
        self.pieces: tuple[str, ...] = (*own, *(tag for tag in tags if tag not in own))
        if self.pieces[: len(SPECIALS)] != SPECIALS:
            raise ModelError(f"the first pieces are {self.pieces[:4]}; allowed: {SPECIALS}")
        self.model = model
        self._ids = {piece: index for index, piece in reversed(tuple(enumerate(self.pieces)))}
        self._silent = frozenset({*range(len(SPECIALS)), *(self._ids[tag] for tag in tags)})

    @classmethod
    def from_file(cls, path: Path, tags: Sequence[str] = ()) -> "Vocabulary":
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"vocabulary {path.name}: {error.strerror}") from error
        return cls(content, tags)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end."""
        ids: list[int] = self._processor.EncodeAsIds(text)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids; specials and tags are silent.

        Bytes of byte-fallback pieces that make no character become U+FFFD.
        """
        text = b"".join(map(self.text_bytes, ids)).decode(errors="replace")
        return text.removeprefix(" ")

    def id_of(self, piece: str) -> int:
        if piece not in self._ids:
            raise ModelError(f"piece {piece!r} is not in the vocabulary of {len(self)} pieces")
        return self._ids[piece]

    def text(self, index: int) -> str:
        """What a piece writes, with a leading space where it begins a word."""
        if self.is_silent(index):
            return ""
        return self.pieces[index].replace(WORD_START, " ")

    def text_bytes(self, index: int) -> bytes:
        """`text` in UTF-8, or the single byte of a byte-fallback piece."""
        if not self.is_silent(index) and self._is_byte(index):
            return bytes([int(self.pieces[index][3:5], 16)])
        return self.text(index).encode()

    def starts_word(self, index: int) -> bool:
        return not self.is_silent(index) and self.pieces[index].startswith(WORD_START)

    def is_silent(self, index: int) -> bool:
        """Whether the piece writes nothing: specials and tags.

        Raises:
            ModelError: the id is out of range.
        """
        if not 0 <= index < len(self.pieces):
            raise ModelError(f"piece id is {index}; allowed: 0 to {len(self.pieces) - 1}")
        return index in self._silent

    def _is_byte(self, index: int) -> bool:
        return index < self._processor.GetPieceSize() and bool(self._processor.IsByte(index))
