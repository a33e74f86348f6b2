"""The pretrained recogniser as a teacher: for missing transcripts, and for case and commas."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING

import torch

from earvoice.corpus.sound import read_sound
from earvoice.corpus.states import encode, pretrained_encoder, pretrained_part, whisper_folder
from earvoice.corpus.texts import captioned
from earvoice.models.config import DecoderConfig, ModelConfig, TargetLanguage
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import byte_alphabet
from earvoice.models.whisper import WhisperConfig
from earvoice.runtime.files import drop_torn_line
from earvoice.training.greedy import greedy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.corpus.clips import Clip

BATCH_CLIPS = 24
TAIL_MS = 4000
"""Silence after the sound: with less, Whisper begins again at the end."""
WHISPER_END = 50256
WHISPER_PROMPT = (50257, 50362)
"""Start of a transcript; no timestamps."""
WHISPER_DECODER = DecoderConfig(
    layers=4,
    heads=6,
    ffn_width=1536,
    tied_embeddings=True,
    activation="gelu",
    positions="learned",
    key_bias=False,
)
_LEAST_LOG_PROBABILITY = -0.55
LEAST_AGREEMENT = 0.5
_WORD = re.compile(r"[\w']+")


@cache
def whisper_pieces() -> tuple[str, ...]:
    """GPT-2's byte-pair pieces in the order of their ranks, as printable characters."""
    return tuple((whisper_folder() / "vocabulary.txt").read_text(encoding="utf-8").split("\n"))[
        :51864
    ]


def whisper_text(tokens: Sequence[int]) -> str:
    pieces, table = whisper_pieces(), byte_alphabet()
    content = bytes(table[c] for token in tokens if token < WHISPER_END for c in pieces[token])
    return content.decode(errors="replace").strip()


def pretrained_decoder() -> TransformerDecoder:
    tensors = pretrained_part("decoder")
    decoder = TransformerDecoder(whisper_shape(len(tensors["embed_tokens.weight"])))
    missing, unexpected = decoder.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"output_projection.weight"}:
        raise RuntimeError(f"the weights do not fit: {unexpected or missing}")
    return decoder.eval()


def whisper_shape(target_pieces: int) -> ModelConfig:
    return ModelConfig(
        "states",
        "1",
        "en",
        (TargetLanguage("en"),),
        source_pieces=5,
        target_pieces=target_pieces,
        encoder=WhisperConfig(),
        decoder=WHISPER_DECODER,
    )


def loops(text: str) -> bool:
    """Whether one to six words are repeated three times in a row."""
    return re.search(r"\b(\w+(?:\W+\w+){0,5})(?:\W+\1\b){2,}", text.lower()) is not None


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def recased(transcript: str, heard: str) -> str:
    """A transcript with the case and punctuation of what was heard, where the words agree."""
    said = transcript.split()
    pieces = heard.split()
    theirs = ["".join(words_of(piece)) for piece in pieces]
    ours = ["".join(words_of(word)) for word in said]
    out = list(said)
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            out[block.a + offset] = pieces[block.b + offset]
    return " ".join(out)


def agreement(transcript: str, heard: str) -> float:
    ours, theirs = words_of(transcript), words_of(heard)
    return difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False).ratio()


def english_of(transcript: str, heard: str, mean_log_probability: float) -> str | None:
    """The caption to learn; None where it is too uncertain."""
    if not transcript:
        sure = mean_log_probability >= _LEAST_LOG_PROBABILITY and len(words_of(heard)) > 1
        return heard if sure and not loops(heard) else None
    if _is_written(transcript):
        return transcript
    if agreement(transcript, heard) < LEAST_AGREEMENT:
        heard = ""
    return captioned(recased(transcript, heard).rstrip(",;:"))


def needs_hearing(clip: Clip) -> bool:
    """Whether a transcript is missing, or has neither case nor commas."""
    return clip.split != "test" and not _is_written(clip.transcript)


def _is_written(transcript: str) -> bool:
    return any(c.isupper() for c in transcript) and any(
        not c.isalnum() and c != " " for c in transcript
    )


def hear(items: Sequence[tuple[Clip, Path]], table: Path) -> None:
    """Write the pretrained network's transcript of each clip and its mean token log-probability."""
    encoder, decoder = pretrained_encoder(TAIL_MS), pretrained_decoder()
    allowed = torch.arange(decoder.embed_tokens.num_embeddings) <= WHISPER_END
    drop_torn_line(table)
    known = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    done = {line.split("\t")[0] for line in known}
    items = [(clip, path) for clip, path in items if clip.key not in done]
    with table.open("a", encoding="utf-8") as stream:
        for begin in range(0, len(items), BATCH_CLIPS):
            part = items[begin : begin + BATCH_CLIPS]
            states = [
                torch.from_numpy(s).float()
                for s, _ in encode([read_sound(path) for _, path in part], encoder)
            ]
            memory = torch.nn.utils.rnn.pad_sequence(states, batch_first=True)
            lengths = torch.tensor([len(each) for each in states])
            most = min(300, 10 + int(lengths.max() - TAIL_MS // 20) // 6)
            texts, scores = greedy(
                decoder, memory, lengths, [WHISPER_PROMPT] * len(part), WHISPER_END, most, allowed
            )
            for (clip, _), tokens, score in zip(part, texts, scores, strict=True):
                words = " ".join(whisper_text(tokens).split())
                stream.write(f"{clip.key}\t{sum(score) / max(1, len(score)):.3f}\t{words}\n")
            stream.flush()
