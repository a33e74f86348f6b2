"""An utterance of a text source: its words so far, and what the network makes of them."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import frame_count
from earvoice.models.config import FRAME_SHIFT_MS
from earvoice.runtime.audio_format import WORD_BYTES, WORDS, WORDS_PER_SECOND
from earvoice.runtime.errors import InvalidAudioError

SENTENCE_END = "\n"


@runtime_checkable
class TextNetwork(Protocol):
    """A loaded encoder that reads words."""

    description: types_pb2.ModelDescription
    dimension: int
    """Values of one state."""

    def encode_words(self, words: tuple[str, ...], *, ended: bool) -> tuple[bytes, tuple[int, ...]]:
        """Encode the words of a sentence so far; `ended` says that no more will come.

        Returns:
            States, [S, dimension] float32, row-major, little-endian; for each of them, how many
            words had been read up to its piece.
        """


class TextUtterance:
    """Words since a position; has the methods of `Utterance`, its counterpart for sound."""

    audio_format = WORDS

    def __init__(self, network: TextNetwork, start_sample: int) -> None:
        self.start_sample = start_sample
        self._network = network
        self._words: list[str] = []

    def another(self, start_sample: int) -> Self:
        return type(self)(self._network, start_sample)

    @property
    def received_count(self) -> int:
        return len(self._words)

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.received_count

    def add(self, data: bytes) -> None:
        self._words += read_words(data)

    def encode(self, *, skip_silence: bool = False, transcribe: bool = False) -> pb.Encoded:
        """Encode what has been received so far; the message has no states id yet."""
        del skip_silence
        return self._encoded(self.end_sample, final=False, transcribe=transcribe)

    def finish(
        self, end_sample: int, *, skip_silence: bool = False, transcribe: bool = False
    ) -> pb.Encoded:
        """Encode the utterance as ending here; words after it count as never received."""
        del skip_silence
        return self._encoded(end_sample, final=True, transcribe=transcribe)

    def _encoded(self, end_sample: int, *, final: bool, transcribe: bool) -> pb.Encoded:
        start = self.start_sample
        marked = self._words[: end_sample - start]
        words = tuple(word.removesuffix(SENTENCE_END) for word in marked)
        states, places = self._network.encode_words(words, ended=final)
        transcript = " ".join(words) if transcribe else ""
        # A sentence end counts as a pause of no length.
        ends = [start + n for n, word in enumerate(marked, 1) if word.endswith(SENTENCE_END)]
        return pb.Encoded(
            states=types_pb2.States(
                state_count=len(places),
                dimension=self._network.dimension,
                element_type=types_pb2.ELEMENT_TYPE_FLOAT32,
                data=states,
                span_end_samples=[start + place for place in places],
                final=final,
            ),
            evidence=pb.SourceEvidence(
                complete_word_count=len(words),
                label_count=len(words),
                last_label_end_sample=end_sample,
                source_transcript=transcript if final else "",
                partial_transcript="" if final else transcript,
                frame_count=len(words) * (1000 // WORDS_PER_SECOND // FRAME_SHIFT_MS),
                voice_activity=pb.VoiceActivity(
                    has_speech=bool(words),
                    speech_start_sample=start,
                    speech_end_sample=end_sample,
                    pauses=[pb.Pause(start_sample=end, end_sample=end) for end in ends],
                ),
            ),
        )


def read_words(data: bytes) -> list[str]:
    """Return the words of a message; the last of a sentence keeps its line feed.

    Raises:
        InvalidAudioError: not whole words, or one is empty, is not UTF-8 or contains a space.
    """
    return [
        _read_word(data[place * WORD_BYTES : (place + 1) * WORD_BYTES], place)
        for place in range(frame_count(WORDS, data))
    ]


def _read_word(padded: bytes, place: int) -> str:
    written = padded.rstrip(b"\0")
    try:
        word = written.decode()
    except UnicodeDecodeError:
        word = ""
    if word.removesuffix(SENTENCE_END).split() != [word.removesuffix(SENTENCE_END)]:
        raise InvalidAudioError(
            f"word {place} of the message is {written!r}; allowed: UTF-8 without blanks, a line "
            f"feed behind the last of a sentence, padded with zeros to {WORD_BYTES} bytes",
            value=str(written),
        )
    return word
