"""The protocol of one session: open, then any number of states, generate and halt."""

from __future__ import annotations

from collections.abc import Sequence

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.generation import EndReason, Generation, Outbox
from earvoice.decoder.strategy import (
    BeamPlan,
    Prompt,
    ServedModel,
    StateBlock,
    least_end_probability,
)
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelMismatchError,
    OutOfOrderError,
    StatesUnknownError,
    UnimplementedFieldError,
)
from earvoice.runtime.stream_ranges import BEAM_SIZE

MAX_NEW_TOKENS = 1024
"""Most tokens that one generation may be asked for."""

ELEMENT_BYTES: dict[int, int] = {
    types_pb2.ELEMENT_TYPE_FLOAT32: 4,
    types_pb2.ELEMENT_TYPE_BFLOAT16: 2,
    types_pb2.ELEMENT_TYPE_FLOAT16: 2,
}


class DecodeSession:
    """Checks each request against the protocol and the model, and passes work to the engine.

    Args:
        max_states: most encoder states of one revision.
        max_tokens: most tokens of one hypothesis, prefix included.
    """

    def __init__(
        self,
        model: ServedModel,
        engine: DecoderEngine,
        outbox: Outbox,
        *,
        max_states: int,
        max_tokens: int,
    ) -> None:
        self._model = model
        self._engine = engine
        self._outbox = outbox
        self._max_states = max_states
        self._max_tokens = max_tokens
        self._language_tokens: tuple[int, ...] = ()
        self._opened: pb.DecodeOpen | None = None
        self._states: StateBlock | None = None
        self._generation: Generation | None = None
        self.session_id = ""
        self.generation_count = 0

    def apply(self, request: pb.DecodeRequest, read_at_s: float) -> None:
        """Do what a request says; an error ends the session."""
        command = request.WhichOneof("command")
        if command is None:
            raise InvalidFieldError("command", "nothing", "open, states, generate or halt")
        if command == "open":
            self._open(request.open)
            return
        if self._opened is None:
            raise OutOfOrderError(f"{command} came before open; allowed: open first")
        if command == "states":
            self._replace_states(request.states)
        elif command == "generate":
            self._generate(
                request.generate, self._opened, read_at_s, request.trace_context.traceparent
            )
        elif self._generation and self._generation.generation_id == request.halt.generation_id:
            self._stop(EndReason.HALTED)

    def close(self) -> None:
        self._stop(EndReason.CLOSED)

    def _stop(self, reason: EndReason) -> None:
        if self._generation is not None:
            self._generation.stop(reason)
            self._engine.wake()

    def _open(self, message: pb.DecodeOpen) -> None:
        if self._opened is not None:
            raise OutOfOrderError("open came twice; allowed: once, as the first command")
        served = self._model.description.hash
        if message.model_hash not in ("", served):
            raise ModelMismatchError(
                f"model_hash = {message.model_hash[:80]!r} is not served; allowed: {served!r} "
                "or nothing",
                served=served,
            )
        self._language_tokens = self._tokens_of_language(message.target_language_code)
        self._check_search("open", message)
        self._opened = message
        self.session_id = message.session_id

    def _tokens_of_language(self, language: str) -> tuple[int, ...]:
        languages = self._model.language_tokens
        for code, tokens in languages.items():
            if code.casefold() == language.casefold():
                return tokens
        raise LanguageNotSupportedError(
            "open.target_language_code", language, ", ".join(sorted(languages))
        )

    def _replace_states(self, message: types_pb2.States) -> None:
        """Hold these states from now on; a generation from the old ones ends as REPLACED."""
        if message.first_changed:
            raise UnimplementedFieldError(
                "states.first_changed",
                f"= {message.first_changed} is not implemented; allowed: 0, all states change",
            )
        states = self._checked_states(message)
        self._stop(EndReason.REPLACED)
        self._states = states

    def _checked_states(self, message: types_pb2.States) -> StateBlock:
        states_id = message.states_id
        if message.element_type not in ELEMENT_BYTES:
            allowed = "FLOAT32 (1), BFLOAT16 (2), FLOAT16 (3)"
            raise InvalidFieldError("states.element_type", message.element_type, allowed)
        if states_id.utterance < 0:
            raise InvalidFieldError("states.states_id.utterance", states_id.utterance, "0 or more")
        if states_id.revision < 1:
            raise InvalidFieldError("states.states_id.revision", states_id.revision, "1 or more")
        if not 0 <= message.state_count <= self._max_states:
            raise InvalidFieldError(
                "states.state_count", message.state_count, f"0 to {self._max_states}"
            )
        if message.state_count and message.dimension != self._model.dimension:
            raise InvalidFieldError(
                "states.dimension", message.dimension, str(self._model.dimension)
            )
        size_bytes = ELEMENT_BYTES[message.element_type]
        expected_bytes = message.state_count * message.dimension * size_bytes
        if len(message.data) != expected_bytes:
            raise InvalidFieldError(
                "states.data", f"{len(message.data)} bytes", f"{expected_bytes} bytes"
            )
        before = self._states
        if before is not None and before.message.states_id.utterance == states_id.utterance:
            return StateBlock(message, before.source_text)
        return StateBlock(message)

    def _generate(
        self, message: pb.Generate, opened: pb.DecodeOpen, read_at_s: float, traceparent: str
    ) -> None:
        """Start a generation; one still running ends as REPLACED."""
        states = self._states_for(message)
        self._check_generate(message)
        max_new_tokens = min(message.max_new_tokens, self._max_tokens - len(message.prefix))
        # What a generation leaves unset is taken from `open`.
        reads = message if message.attention_layer else opened
        layer = reads.attention_layer or self._model.description.default_attention_layer
        size = message.beam_size or opened.beam_size or 1
        beam = BeamPlan(size, max_new_tokens, message.all_hypotheses)
        prompt = Prompt(
            forced=(self._model.tokens.end_token, *self._language_tokens, *message.prefix),
            draft=tuple(message.draft[:max_new_tokens]),
            attention_layer=layer,
            forbid_end=message.forbid_end_of_sequence,
            attention_heads=tuple(reads.attention_heads),
            reported_prefix_tokens=len(message.prefix) if message.prefix_attention else 0,
            beam=beam if size > 1 else None,
            least_end_probability=least_end_probability(
                self._model.least_empty_probability, states, message.prefix
            ),
        )
        self._stop(EndReason.REPLACED)
        self._generation = Generation(
            message.generation_id,
            states,
            prompt,
            max_new_tokens,
            self._model.tokens.end_token,
            self._outbox,
            prefix_length=len(message.prefix),
            read_at_s=read_at_s,
            traceparent=traceparent,
        )
        self.generation_count += 1
        self._engine.submit(self._generation)

    def _states_for(self, message: pb.Generate) -> StateBlock:
        if self._states is None:
            raise OutOfOrderError("generate came before states; allowed: states first")
        wanted, held = map(_shown_id, (message.states_id, self._states.message.states_id))
        if wanted != held:
            raise StatesUnknownError(
                f"generate.states_id = {wanted} (utterance.revision) is unknown; "
                f"allowed: {held}, the last states sent",
                held=held,
            )
        if not self._states.message.state_count:
            raise InvalidFieldError(
                "generate.states_id", f"{held} with 0 states", "states with at least one state"
            )
        return self._states

    def _check_generate(self, message: pb.Generate) -> None:
        last = self._generation.generation_id if self._generation else None
        if last is not None and message.generation_id <= last:
            raise InvalidFieldError(
                "generate.generation_id", message.generation_id, f"more than {last}"
            )
        if not 1 <= message.max_new_tokens <= MAX_NEW_TOKENS:
            raise InvalidFieldError(
                "generate.max_new_tokens", message.max_new_tokens, f"1 to {MAX_NEW_TOKENS}"
            )
        longest = self._max_tokens - 1
        self._check_tokens("generate.prefix", message.prefix, longest)
        self._check_tokens("generate.draft", message.draft, longest)
        self._check_search("generate", message)
        if message.attention_heads and not message.attention_layer:
            raise InvalidFieldError(
                "generate.attention_heads",
                list(message.attention_heads),
                "none without generate.attention_layer",
            )

    def _check_tokens(self, field: str, tokens: Sequence[int], longest: int) -> None:
        if len(tokens) > longest:
            raise InvalidFieldError(field, f"{len(tokens)} tokens", f"at most {longest} tokens")
        size = len(self._model.tokens.texts)
        wrong = next((token for token in tokens if not 0 <= token < size), None)
        if wrong is not None:
            raise InvalidFieldError(field, wrong, f"ids from 0 to {size - 1}")

    def _check_search(self, command: str, message: pb.DecodeOpen | pb.Generate) -> None:
        layer, heads, size = message.attention_layer, message.attention_heads, message.beam_size
        described = self._model.description
        layer_count, head_count = described.decoder_layer_count, described.decoder_head_count
        if not 0 <= layer <= layer_count:
            allowed = f"1 to {layer_count}, or 0 for default"
            raise InvalidFieldError(f"{command}.attention_layer", layer, allowed)
        wrong = [head for head in heads if not 1 <= head <= head_count]
        if wrong or len(set(heads)) < len(heads):
            allowed = f"1 to {head_count}, each once"
            raise InvalidFieldError(f"{command}.attention_heads", list(heads), allowed)
        if not 0 <= size <= BEAM_SIZE[1]:
            allowed = f"1 to {BEAM_SIZE[1]}, or 0 for default"
            raise InvalidFieldError(f"{command}.beam_size", size, allowed)
        if size > 1 and self._model.description.greedy_only:
            raise InvalidFieldError(f"{command}.beam_size", size, "1 with this model")


def _shown_id(states_id: types_pb2.StatesId) -> str:
    return f"{states_id.utterance}.{states_id.revision}"
