"""Resume tokens: a session as bytes that its client keeps, to continue after an interruption."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from earvoice.api.v1 import resume_state_pb2 as resume_pb
from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policies.base import Snapshot, Token, longest_common_prefix_tokens
from earvoice.policies.registry import POLICIES, Policies
from earvoice.policy.endpoints import SegmentGrid
from earvoice.policy.event import SegmentWorked, SessionSnapshot, SessionTotals
from earvoice.policy.history import STRONG_PUNCTUATION
from earvoice.policy.settings import SHORTEST_KEY_BYTES, PolicySettings, parse_keys
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.utterance import Utterance, UtteranceState
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.events import end_message, read_as, read_end, stages_message
from earvoice.policy.words import CommitTime, StageTimings, Word
from earvoice.runtime.errors import (
    InternalError,
    InvalidFieldError,
    InvalidResumeTokenError,
    ModelNotFoundError,
    UnimplementedFieldError,
    shown,
)

TOKEN_LIMIT_BYTES = 4096
SIGNATURE_BYTES = 32

_LOG = logging.getLogger("earvoice.policy.resume")

_STARTS_WORD, _ENDS_SENTENCE = 1, 2
_MARK_BITS, _MARKS_A_BYTE = 2, 4

Model = types_pb2.ModelDescription


@dataclass
class TokenOwner:
    """The session that tokens belong to.

    Attributes:
        tenant: who may resume it; empty without authentication.
        traceparent: the trace that the session's messages belong to, or empty.
    """

    tenant: str
    model: Model
    session_id: str
    traceparent: str
    _said: tuple[StreamOptions, bytes] | None = field(default=None, compare=False, repr=False)

    def part(self, options: StreamOptions) -> bytes:
        """Return the part that all tokens share until the options change, serialised once."""
        if self._said is None or self._said[0] is not options:
            message = resume_pb.ResumeState(
                tenant=self.tenant,
                model_hash=self.model.hash,
                session_id=self.session_id,
                traceparent=self.traceparent,
                config=effective_config(options, self.model),
            )
            self._said = options, message.SerializeToString()
        return self._said[1]


class ResumeTokens:
    """Makes tokens and takes them back.

    They are signed with HMAC-SHA256 (RFC 2104): the first key signs, all are accepted.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        lifetime_s: float,
        unix_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.perf_counter,
        policies: Policies = POLICIES,
    ) -> None:
        self._policies = policies
        self._keys = keys
        self._lifetime_s = lifetime_s
        self._unix_s = unix_s
        self._monotonic_s = monotonic_s

    @classmethod
    def of(cls, settings: PolicySettings, policies: Policies) -> ResumeTokens:
        """Return a service's tokens; without configured keys it accepts only its own."""
        if settings.resume_keys is not None:
            keys = parse_keys(settings.resume_keys.get_secret_value())
        else:
            keys = [secrets.token_bytes(SHORTEST_KEY_BYTES)]
            _LOG.info("no RESUME_KEYS: sessions can be resumed only here, and not after a restart")
        return cls(keys, settings.resume_lifetime_ms / 1000, policies=policies)

    def make(self, snapshot: SessionSnapshot, seq: int, owner: TokenOwner) -> bytes:
        """Return a token, 4 KiB at most; empty if it would be longer."""
        now_s = self._unix_s()
        origin_ms = (snapshot.origin_s or 0.0) * 1000
        # The part that changes from segment to segment.
        message = resume_pb.ResumeState(
            expires_unix_ms=int((now_s + self._lifetime_s) * 1000),
            seq=seq,
            lag_ms=snapshot.lag_ms,
            decided_samples=snapshot.decided_sample,
            true_finished_ms=snapshot.true_finished_ms,
            totals=public_pb.Summary(**vars(snapshot.totals)),
        )
        _write_utterance(message.utterance, snapshot.utterance, origin_ms)
        try:
            _write_memory(message.utterance, snapshot.utterance.memory)
        except (TypeError, ValueError) as error:
            # An operator's own policy; what it remembers is the operator's to see.
            raise InternalError(
                f"policy.{snapshot.options.policy.name}: snapshot returned "
                f"{shown(snapshot.utterance.memory)}; allowed: plain JSON values by name"
            ) from error
        if snapshot.origin_s is not None:
            message.origin_unix_ms = origin_ms + (now_s - self._monotonic_s()) * 1000
        if snapshot.grid is not None:
            message.grid.segment_ms = snapshot.grid.segment_ms
            message.grid.wait_ms = snapshot.grid.wait_ms
            message.grid.anchor_sample = snapshot.grid.anchor_sample
            message.grid.anchor_index = snapshot.grid.anchor_index
        if snapshot.segment is not None:
            told = vars(snapshot.segment) | {"hypothesis_tokens": ()}
            message.segment.CopyFrom(public_pb.SegmentDone(**told))
            if tokens := snapshot.segment.hypothesis_tokens:
                known = [*message.utterance.prefix, *message.utterance.draft]
                message.hypothesis.CopyFrom(_tokens_message(tokens, known))
        if snapshot.end is not None:
            message.end.CopyFrom(end_message(snapshot.end))
        # Concatenating the bytes of protobuf messages merges them.
        content = owner.part(snapshot.options) + message.SerializeToString()
        token = hmac.digest(self._keys[0], content, hashlib.sha256) + content
        return token if len(token) <= TOKEN_LIMIT_BYTES else b""

    def take(
        self, token: bytes, tenant: str, find_model: Callable[[str], Model]
    ) -> tuple[SessionSnapshot, int, TokenOwner]:
        """Return the session that a token stands for, its message's number, and its owner."""
        message = self._opened(token)
        late_s = self._unix_s() - message.expires_unix_ms / 1000
        if late_s > 0:
            raise InvalidResumeTokenError(f"it expired {late_s:.0f} s ago", "expired")
        if message.tenant != tenant:
            raise InvalidResumeTokenError("it was given to another tenant", "tenant")
        try:
            model = find_model(message.model_hash)
        except ModelNotFoundError as error:
            raise InvalidResumeTokenError(
                f"its session's model {message.model_hash} is not served here", "model"
            ) from error
        try:
            snapshot = _read_session(
                message, model, self._unix_s() - self._monotonic_s(), self._policies
            )
            # Only restoring it shows whether the policy can read its memory.
            Utterance(snapshot.utterance, snapshot.options.policy.begin())
        except (InvalidFieldError, UnimplementedFieldError) as error:
            problem = f"its session's config is not served here: {error.message}"
            raise InvalidResumeTokenError(problem, "version") from error
        except (ValueError, KeyError) as error:
            raise InvalidResumeTokenError("another version has made it", "version") from error
        owner = TokenOwner(tenant, model, message.session_id, message.traceparent)
        return snapshot, message.seq, owner

    def _opened(self, token: bytes) -> resume_pb.ResumeState:
        if len(token) > TOKEN_LIMIT_BYTES:
            raise InvalidResumeTokenError(
                f"it has {len(token)} bytes; allowed: {TOKEN_LIMIT_BYTES}", "forged"
            )
        signature, content = token[:SIGNATURE_BYTES], token[SIGNATURE_BYTES:]
        signatures = (hmac.digest(key, content, hashlib.sha256) for key in self._keys)
        if not any(hmac.compare_digest(own, signature) for own in signatures):
            raise InvalidResumeTokenError(
                "it is not signed with one of this server's keys", "forged"
            )
        try:
            return resume_pb.ResumeState.FromString(content)
        except DecodeError as error:
            raise InvalidResumeTokenError(
                "it is not signed with one of this server's keys", "forged"
            ) from error


def _read_session(
    message: resume_pb.ResumeState, model: Model, unix_s: float, policies: Policies
) -> SessionSnapshot:
    options = stream_options(message.config, model, policies)
    live = message.HasField("origin_unix_ms")
    origin_s = message.origin_unix_ms / 1000 - unix_s if live else None
    grid = message.grid
    known = [*message.utterance.prefix, *message.utterance.draft]
    rate_hertz = options.audio_format.sample_rate_hz
    return SessionSnapshot(
        options=options,
        utterance=_read_utterance(message.utterance, (origin_s or 0.0) * 1000),
        grid=SegmentGrid(
            rate_hertz, grid.segment_ms, grid.wait_ms, grid.anchor_sample, grid.anchor_index
        )
        if message.HasField("grid")
        else None,
        lag_ms=message.lag_ms if message.HasField("lag_ms") else None,
        decided_sample=message.decided_samples,
        true_finished_ms=message.true_finished_ms,
        origin_s=origin_s,
        totals=read_as(SessionTotals, message.totals, guards_hit=dict(message.totals.guards_hit)),
        segment=read_as(
            SegmentWorked,
            message.segment,
            hypothesis_tokens=tuple(_read_tokens(message.hypothesis, known)),
        )
        if message.HasField("segment")
        else None,
        end=read_end(message.end) if message.HasField("end") else None,
    )


def _write_utterance(
    message: resume_pb.ResumeUtterance, utterance: UtteranceState, origin_ms: float
) -> None:
    prefix = [token.token_id for token in utterance.kept]
    marks = bytearray(-(-len(prefix) // _MARKS_A_BYTE))
    for index, token in enumerate(utterance.kept):
        mark = _STARTS_WORD * token.starts_word
        mark |= _ENDS_SENTENCE * token.text.endswith(STRONG_PUNCTUATION)
        marks[index // _MARKS_A_BYTE] |= mark << (index % _MARKS_A_BYTE * _MARK_BITS)
    ends = [utterance.start_sample, *utterance.word_end_samples]
    message.index = utterance.index
    message.begin_sample = utterance.begin_sample
    message.start_sample = utterance.start_sample
    message.segment = utterance.segment_index
    message.prefix.extend(prefix)
    message.prefix_marks = bytes(marks)
    message.draft.extend(utterance.draft)
    message.word_end_deltas.extend([b - a for a, b in itertools.pairwise(ends)])
    message.written_words = utterance.written_word_count
    message.written_tokens = utterance.written_token_count
    message.written_letters = utterance.written_letter_count
    message.spoken_for_sample = utterance.spoken_for_sample
    message.is_closed = utterance.is_closed
    message.is_understood = utterance.is_understood
    message.is_in_sentence = utterance.is_in_sentence
    held = utterance.held
    if held is not None:
        message.held.text = held.utf8
        message.held.starts_word = held.starts_word
        message.held.source_start_sample = held.source_start_sample
        message.held.source_end_sample = held.source_end_sample
        message.held.elapsed_ms = held.committed.elapsed_ms
        message.held.moment_ms = held.committed.moment_ms - origin_ms
        message.held.stages.CopyFrom(stages_message(held.committed.stages))
        message.held.segment = held.committed.segment
        message.held.log_probability = held.log_probability


def _read_utterance(message: resume_pb.ResumeUtterance, origin_ms: float) -> UtteranceState:
    """Return the utterance; of its prefix's text, only the ends of sentences remain."""
    ends = list(itertools.accumulate([message.start_sample, *message.word_end_deltas]))
    kept = []
    for index, token_id in enumerate(message.prefix):
        packed = message.prefix_marks[index // _MARKS_A_BYTE]
        marks = packed >> (index % _MARKS_A_BYTE * _MARK_BITS)
        text = STRONG_PUNCTUATION[0] if marks & _ENDS_SENTENCE else b""
        kept.append(Token(token_id, text, bool(marks & _STARTS_WORD), ()))
    held = message.held
    held_word = Word(
        utf8=held.text,
        starts_word=held.starts_word,
        utterance=message.index,
        source_start_sample=held.source_start_sample,
        source_end_sample=held.source_end_sample,
        committed=CommitTime(
            elapsed_ms=held.elapsed_ms,
            moment_ms=held.moment_ms + origin_ms,
            stages=read_as(StageTimings, held.stages),
            segment=held.segment,
        ),
        log_probability=held.log_probability,
    )
    return UtteranceState(
        index=message.index,
        begin_sample=message.begin_sample,
        start_sample=message.start_sample,
        segment_index=message.segment,
        kept=tuple(kept),
        draft=tuple(message.draft),
        word_end_samples=tuple(ends[1:]),
        written_word_count=message.written_words,
        written_token_count=message.written_tokens,
        written_letter_count=message.written_letters,
        spoken_for_sample=message.spoken_for_sample,
        is_closed=message.is_closed,
        held=held_word if message.HasField("held") else None,
        memory=_read_memory(message, [*message.prefix, *message.draft]),
        is_understood=message.is_understood,
        is_in_sentence=message.is_in_sentence,
    )


def _tokens_message(tokens: Sequence[int], known: Sequence[int]) -> resume_pb.ResumeTokens:
    """Return token ids, encoded by the prefix that they share with known ones."""
    shared = longest_common_prefix_tokens([tokens, known])
    return resume_pb.ResumeTokens(shared=shared, rest=tokens[shared:])


def _read_tokens(message: resume_pb.ResumeTokens, known: Sequence[int]) -> list[int]:
    return [*known[: message.shared], *message.rest]


def _write_memory(message: resume_pb.ResumeUtterance, memory: Snapshot) -> None:
    """Raises TypeError or ValueError for what is not JSON."""
    known = [*message.prefix, *message.draft]
    for name, value in memory.items():
        message.memory[name].CopyFrom(_memory_part(value, known))


def _memory_part(value: object, known: Sequence[int]) -> resume_pb.MemoryPart:
    match value:
        case None:
            return resume_pb.MemoryPart()
        case int() if _is_whole(value, 64):
            return resume_pb.MemoryPart(integer=value)
        case float():
            return resume_pb.MemoryPart(number=value)
        case list() if all(_is_whole(item, 32) for item in value):
            return resume_pb.MemoryPart(tokens=_tokens_message(value, known))
    return resume_pb.MemoryPart(json=json.dumps(value))


def _is_whole(value: object, bits: int) -> bool:
    return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _read_memory(message: resume_pb.ResumeUtterance, known: Sequence[int]) -> Snapshot:
    memory: Snapshot = {}
    for name, part in message.memory.items():
        match part.WhichOneof("value"):
            case "integer":
                memory[name] = part.integer
            case "number":
                memory[name] = part.number
            case "tokens":
                memory[name] = _read_tokens(part.tokens, known)
            case "json":
                memory[name] = json.loads(part.json)
            case _:
                memory[name] = None
    return memory
