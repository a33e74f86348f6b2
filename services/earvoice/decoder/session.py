"""The protocol of one session: open, then states, generate and halt in any number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from earvoice.decoder.command import GenerateCommand, HaltCommand, OpenCommand, StatesCommand
from earvoice.decoder.event import EndReason
from earvoice.decoder.generation import Assignment, Generation
from earvoice.decoder.model import ServedModel
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.search_terms import SearchTerms, terms_for, terms_of
from earvoice.decoder.state_block import StateBlock
from earvoice.decoder.strategies.base import BeamPlan, Opening
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelMismatchError,
    OutOfOrderError,
    StatesUnknownError,
    UnimplementedFieldError,
)

MAX_NEW_TOKENS = 1024
"""Most tokens that one generation may be asked for."""


class Engine(Protocol):
    """What a session asks of the engine."""

    def submit(self, generation: Generation) -> None:
        """Queue a generation."""

    def wake(self) -> None:
        """Notice that a generation was asked to stop."""


@dataclass(frozen=True, slots=True)
class SessionBounds:
    """What one session may hold.

    Attributes:
        max_states: encoder states of one revision.
        max_tokens: tokens of one hypothesis, prefix included.
    """

    max_states: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class _Terms:
    """What was agreed on when the session was opened."""

    session_id: str
    language_tokens: tuple[int, ...]
    search: SearchTerms


class DecodeSession:
    """Checks each command against the protocol and the model, and passes work to the engine.

    Args:
        model: the model served.
        bounds: what one session may hold.
        engine: where generations are computed.
        outbox: where their events go.
    """

    def __init__(
        self, model: ServedModel, bounds: SessionBounds, engine: Engine, outbox: Outbox
    ) -> None:
        self._model = model
        self._bounds = bounds
        self._engine = engine
        self._outbox = outbox
        self._terms: _Terms | None = None
        self._states: StateBlock | None = None
        self._generation: Generation | None = None
        self.generation_count = 0

    @property
    def session_id(self) -> str:
        """The caller's name for the session; empty before it is open."""
        return self._terms.session_id if self._terms else ""

    def open(self, command: OpenCommand) -> None:
        """Agree on model, language, search and attention.

        Raises:
            OutOfOrderError: the session is open already.
            ModelMismatchError: another model is expected.
            LanguageNotSupportedError: the model does not write this language.
            InvalidFieldError: a field is out of range.
        """
        if self._terms is not None:
            raise OutOfOrderError("open came twice; allowed: once, as the first command")
        served = self._model.facts.hash
        if command.model_hash not in ("", served):
            raise ModelMismatchError(
                f"model_hash = {command.model_hash[:80]!r} is not served; allowed: {served!r} "
                "or nothing",
                served=served,
            )
        self._terms = _Terms(
            command.session_id, self._language_tokens(command), terms_of(command, self._model)
        )

    def replace_states(self, command: StatesCommand) -> None:
        """Hold these states from now on; what attends to the old ones ends as REPLACED.

        Raises:
            OutOfOrderError: the session is not open.
            UnimplementedFieldError: only a part of the states is replaced.
            InvalidFieldError: the block is not what the model takes.
        """
        self._require_open("states")
        if command.first_changed:
            raise UnimplementedFieldError(
                "states.first_changed",
                f"= {command.first_changed} is not implemented; allowed: 0, all states change",
            )
        command.block.check(dimension=self._model.dimension, max_states=self._bounds.max_states)
        self._stop(EndReason.REPLACED)
        self._states = command.block

    def generate(self, command: GenerateCommand) -> None:
        """Start a generation; one still running ends as REPLACED.

        Raises:
            OutOfOrderError: the session is not open, or no states have come.
            StatesUnknownError: these states are not the last sent.
            InvalidFieldError: a field is out of range, or there are no states to attend to.
        """
        terms = self._require_open("generate")
        states = self._states_of(command)
        self._check(command)
        allowed_tokens = min(command.max_new_tokens, self._bounds.max_tokens - len(command.prefix))
        opening = self._opening(command, terms, allowed_tokens)
        self._stop(EndReason.REPLACED)
        self._generation = Generation(
            Assignment(
                command.generation_id,
                states,
                opening,
                len(command.prefix),
                allowed_tokens,
                self._model.tokens.end_token,
                command.read_at_s,
                command.traceparent,
            ),
            self._outbox,
        )
        self.generation_count += 1
        self._engine.submit(self._generation)

    def halt(self, command: HaltCommand) -> None:
        """Stop a generation before its next step; another id than the last one's is ignored.

        Raises:
            OutOfOrderError: the session is not open.
        """
        self._require_open("halt")
        if self._generation and self._generation.assignment.generation_id == command.generation_id:
            self._stop(EndReason.HALTED)

    def close(self) -> None:
        """Leave the engine."""
        self._stop(EndReason.CLOSED)

    def _stop(self, reason: EndReason) -> None:
        if self._generation is not None:
            self._generation.stop(reason)
            self._engine.wake()

    def _require_open(self, command: str) -> _Terms:
        if self._terms is None:
            raise OutOfOrderError(f"{command} came before open; allowed: open first")
        return self._terms

    def _language_tokens(self, command: OpenCommand) -> tuple[int, ...]:
        languages = self._model.language_tokens
        for code, tokens in languages.items():
            if code.casefold() == command.target_language.casefold():
                return tokens
        raise LanguageNotSupportedError(
            "open.target_language_code", command.target_language, ", ".join(sorted(languages))
        )

    def _opening(self, command: GenerateCommand, terms: _Terms, allowed_tokens: int) -> Opening:
        search = terms_for(command, terms.search, self._model)
        beam = BeamPlan(search.beam_size, allowed_tokens, command.all_hypotheses)
        return Opening(
            forced=(self._model.tokens.end_token, *terms.language_tokens, *command.prefix),
            draft=tuple(command.draft[:allowed_tokens]),
            attention_layer=search.attention_layer,
            forbid_end=command.forbid_end,
            attention_heads=search.attention_heads,
            reported_prefix_tokens=len(command.prefix) if command.prefix_attention else 0,
            beam=beam if search.beam_size > 1 else None,
        )

    def _states_of(self, command: GenerateCommand) -> StateBlock:
        if self._states is None:
            raise OutOfOrderError("generate came before states; allowed: states first")
        held = self._states.states_id
        if command.states_id != held:
            raise StatesUnknownError(
                f"generate.states_id = {command.states_id} (utterance.revision) is unknown; "
                f"allowed: {held}, the last states sent",
                held=str(held),
            )
        if not self._states.state_count:
            raise InvalidFieldError(
                "generate.states_id", f"{held} with 0 states", "states with at least one state"
            )
        return self._states

    def _check(self, command: GenerateCommand) -> None:
        last = self._generation.assignment.generation_id if self._generation else None
        if last is not None and command.generation_id <= last:
            raise InvalidFieldError(
                "generate.generation_id", command.generation_id, f"more than {last}"
            )
        if not 1 <= command.max_new_tokens <= MAX_NEW_TOKENS:
            raise InvalidFieldError(
                "generate.max_new_tokens", command.max_new_tokens, f"1 to {MAX_NEW_TOKENS}"
            )
        longest = self._bounds.max_tokens - 1
        for field, tokens in (("prefix", command.prefix), ("draft", command.draft)):
            self._check_tokens(f"generate.{field}", tokens, longest)

    def _check_tokens(self, field: str, tokens: Sequence[int], longest: int) -> None:
        if len(tokens) > longest:
            raise InvalidFieldError(field, f"{len(tokens)} tokens", f"at most {longest} tokens")
        size = len(self._model.tokens.texts)
        wrong = next((token for token in tokens if not 0 <= token < size), None)
        if wrong is not None:
            raise InvalidFieldError(field, wrong, f"ids from 0 to {size - 1}")
