"""An utterance between two segments as a message, and read back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from earvoice.api.v1 import resume_state_pb2 as resume_pb
from earvoice.policy.decisions.base import Token, longest_common_prefix_tokens
from earvoice.policy.decisions.snapshot import Snapshot
from earvoice.policy.history import SENTENCE_ENDS
from earvoice.policy.resume.snapshot import HeldPiece, UtteranceSnapshot
from earvoice.policy.timeline import CommitTime
from earvoice.policy.token_origin import TokenOrigin
from earvoice.policy.wire.event_message import read_stages, stages_message

_STARTS_WORD, _ENDS_SENTENCE = 1, 2
_MARK_BITS, _MARKS_A_BYTE = 2, 4


def utterance_message(utterance: UtteranceSnapshot, origin_ms: float) -> resume_pb.ResumeUtterance:
    """Return the message.

    Args:
        utterance: between two segments.
        origin_ms: the session's origin, on the clock that commits are timed with.
    """
    ends = [utterance.start_sample, *utterance.word_end_samples]
    message = resume_pb.ResumeUtterance(
        index=utterance.index,
        begin_sample=utterance.begin_sample,
        start_sample=utterance.start_sample,
        segment=utterance.segment_index,
        prefix=[token.token_id for token in utterance.kept],
        prefix_marks=_marks(utterance.kept),
        draft=utterance.draft,
        word_end_deltas=[after - before for before, after in itertools.pairwise(ends)],
        written_words=utterance.written_word_count,
        written_tokens=utterance.written_token_count,
        spoken_for_sample=utterance.spoken_for_sample,
        is_closed=utterance.is_closed,
    )
    if utterance.held is not None:
        message.held.CopyFrom(_held_message(utterance.held, origin_ms))
    known = [*message.prefix, *message.draft]
    for name, value in utterance.policy.items():
        message.memory[name].CopyFrom(_memory_part(value, known))
    return message


def read_utterance(message: resume_pb.ResumeUtterance, origin_ms: float) -> UtteranceSnapshot:
    """Return the utterance; see `utterance_message`."""
    ends = list(itertools.accumulate([message.start_sample, *message.word_end_deltas]))
    known = [*message.prefix, *message.draft]
    return UtteranceSnapshot(
        message.index,
        message.begin_sample,
        message.start_sample,
        message.segment,
        _read_prefix(message),
        tuple(message.draft),
        tuple(ends[1:]),
        message.written_words,
        message.written_tokens,
        message.spoken_for_sample,
        message.is_closed,
        _read_held(message.held, origin_ms) if message.HasField("held") else None,
        _read_memory(message, known),
    )


def tokens_message(tokens: Sequence[int], known: Sequence[int]) -> resume_pb.ResumeTokens:
    """Return token ids, told by what they share with known ones."""
    shared = longest_common_prefix_tokens([tokens, known])
    return resume_pb.ResumeTokens(shared=shared, rest=tokens[shared:])


def read_tokens(message: resume_pb.ResumeTokens, known: Sequence[int]) -> list[int]:
    """Return the token ids."""
    return [*known[: message.shared], *message.rest]


def _marks(tokens: Sequence[Token]) -> bytes:
    packed = bytearray(-(-len(tokens) // _MARKS_A_BYTE))
    for index, token in enumerate(tokens):
        marks = _STARTS_WORD * token.starts_word
        marks |= _ENDS_SENTENCE * token.text.endswith(SENTENCE_ENDS)
        packed[index // _MARKS_A_BYTE] |= marks << (index % _MARKS_A_BYTE * _MARK_BITS)
    return bytes(packed)


def _read_prefix(message: resume_pb.ResumeUtterance) -> tuple[Token, ...]:
    """The text of committed tokens is asked for no more, but for whether it ends a sentence."""
    tokens = []
    for index, token_id in enumerate(message.prefix):
        packed = message.prefix_marks[index // _MARKS_A_BYTE]
        marks = packed >> (index % _MARKS_A_BYTE * _MARK_BITS)
        text = SENTENCE_ENDS[0] if marks & _ENDS_SENTENCE else b""
        tokens.append(Token(token_id, text, bool(marks & _STARTS_WORD), ()))
    return tuple(tokens)


def _held_message(held: HeldPiece, origin_ms: float) -> resume_pb.HeldPiece:
    committed = held.origin.commit_time
    return resume_pb.HeldPiece(
        text=held.text,
        starts_word=held.starts_word,
        source_start_sample=held.origin.source_start_sample,
        source_end_sample=held.origin.source_end_sample,
        elapsed_ms=committed.elapsed_ms,
        moment_ms=committed.moment_ms - origin_ms,
        stages=stages_message(committed.stages),
        segment=committed.segment,
    )


def _read_held(message: resume_pb.HeldPiece, origin_ms: float) -> HeldPiece:
    committed = CommitTime(
        message.elapsed_ms,
        message.moment_ms + origin_ms,
        read_stages(message.stages),
        message.segment,
    )
    origin = TokenOrigin(message.source_start_sample, message.source_end_sample, committed)
    return HeldPiece(message.text, message.starts_word, origin)


def _memory_part(value: object, known: Sequence[int]) -> resume_pb.MemoryPart:
    match value:
        case None:
            return resume_pb.MemoryPart()
        case int():
            return resume_pb.MemoryPart(integer=value)
        case float():
            return resume_pb.MemoryPart(number=value)
        case list():
            return resume_pb.MemoryPart(tokens=tokens_message(value, known))
    raise TypeError(f"a policy's memory has {type(value).__name__}")


def _read_memory(message: resume_pb.ResumeUtterance, known: Sequence[int]) -> Snapshot:
    memory: Snapshot = {}
    for name, part in message.memory.items():
        match part.WhichOneof("value"):
            case "integer":
                memory[name] = part.integer
            case "number":
                memory[name] = part.number
            case "tokens":
                memory[name] = read_tokens(part.tokens, known)
            case _:
                memory[name] = None
    return memory
