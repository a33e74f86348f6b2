"""Doubles for the decoder: a strategy that reads from a script, an engine that only notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from earvoice.decoder.command import GenerateCommand, OpenCommand, StatesCommand
from earvoice.decoder.generation import Generation
from earvoice.decoder.model import ServedModel, TokenTable
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import BeamItem, Choice, Opening, Progress, Strategy
from earvoice.runtime.model_facts import ModelFacts

END = 2
SIZE = 50
DIMENSION = 4


def model() -> ServedModel:
    """A model of 50 tokens and 4 layers that writes German, and French with a tag."""
    return ServedModel(
        facts=ModelFacts(
            name="scripted",
            hash="ab" * 32,
            version="1",
            source_language="en",
            target_languages=("de", "fr"),
            decoder_layers=4,
            parameter_count=1,
            computes_in_bfloat16=False,
            default_policy="edatt",
            default_alpha=0.2,
            default_lambda_states=2,
            default_attention_layer=3,
            default_frames=4,
            default_segment_ms=800,
        ),
        language_tokens={"de": (), "fr": (49,)},
        dimension=DIMENSION,
        head_count=2,
        tokens=TokenTable(tuple(b"" for _ in range(SIZE)), (False,) * SIZE, END),
    )


def opening(**changes: object) -> OpenCommand:
    """An open command that is fine but for the changes."""
    fields: dict[str, object] = {
        "model_hash": "",
        "target_language": "de",
        "attention_layer": 0,
        "attention_heads": (),
        "beam_size": 0,
        "session_id": "s",
    }
    return OpenCommand(**(fields | changes))  # type: ignore[arg-type]


def block(count: int = 2, utterance: int = 0, revision: int = 1, **changes: object) -> StateBlock:
    """Zeros of the right size but for the changes."""
    fields: dict[str, object] = {
        "states_id": StatesId(utterance, revision),
        "state_count": count,
        "dimension": DIMENSION,
        "element_type": ElementType.FLOAT32,
        "data": bytes(count * DIMENSION * 4),
    }
    return StateBlock(**(fields | changes))  # type: ignore[arg-type]


def states(count: int = 2, revision: int = 1) -> StatesCommand:
    """A states command that is fine."""
    return StatesCommand(block(count, revision=revision), 0)


def generate(generation_id: int = 1, **changes: object) -> GenerateCommand:
    """A generate command that is fine but for the changes."""
    fields: dict[str, object] = {
        "generation_id": generation_id,
        "states_id": StatesId(0, 1),
        "prefix": (),
        "draft": (),
        "max_new_tokens": 8,
        "forbid_end": False,
        "read_at_s": 0.0,
    }
    return GenerateCommand(**(fields | changes))  # type: ignore[arg-type]


@dataclass
class NotingEngine:
    """Keeps what is submitted."""

    submitted: list[Generation] = field(default_factory=list)
    wakes: int = 0

    def submit(self, generation: Generation) -> None:
        """Note a generation."""
        self.submitted.append(generation)

    def wake(self) -> None:
        """Count."""
        self.wakes += 1


@dataclass
class ScriptedRun:
    """What is left to say; an exception is raised instead of said."""

    left: list[int | Exception]
    opening: Opening
    searched: list[Choice] = field(default_factory=list)


class ScriptedStrategy(Strategy[ScriptedRun]):
    """Says the same script in every session, or the one that belongs to a revision.

    Args:
        scripts: by revision of the states; tokens, or exceptions to raise.

    Attributes:
        batches: how many runs each step had.
        begun: what was begun, in order.
    """

    def __init__(self, scripts: dict[int, Sequence[int | Exception]]) -> None:
        self._scripts = scripts
        self.batches: list[int] = []
        self.begun: list[Opening] = []

    def begin(self, states: StateBlock, opening: Opening) -> tuple[ScriptedRun, Progress]:
        """Accept the agreeing part of the draft and say one token more."""
        self.begun.append(opening)
        run = ScriptedRun(list(self._scripts[states.states_id.revision]), opening)
        if opening.beam:
            return run, _searched(run)
        choices = []
        for token in opening.draft:
            if run.left[0] != token:
                break
            choices.append(_choice(run, from_draft=True))
        if not choices or choices[-1].token != END:
            choices.append(_choice(run))
        return run, Progress.of(choices, [[1.0]] * opening.reported_prefix_tokens)

    def step(self, runs: Sequence[ScriptedRun]) -> list[Progress]:
        """Say the next token of each; a beam only when it ends."""
        self.batches.append(len(runs))
        for run in runs:
            if isinstance(run.left[0], Exception):
                raise run.left[0]
        return [_searched(run) if run.opening.beam else Progress.of([_choice(run)]) for run in runs]


def _choice(run: ScriptedRun, *, from_draft: bool = False) -> Choice:
    token = run.left.pop(0)
    if isinstance(token, Exception):
        raise token
    return Choice(token, -0.5, [1.0], near_tie=token == SIZE - 1, from_draft=from_draft)


def _searched(run: ScriptedRun) -> Progress:
    """A beam of two: the script, and its first token alone."""
    plan = run.opening.beam
    assert plan is not None
    run.searched.append(_choice(run))
    if run.searched[-1].token != END and len(run.searched) < plan.max_new_tokens:
        return Progress([], [], [], near_tie=True)
    beam = [BeamItem(run.searched, -0.5), BeamItem(run.searched[:1], -0.7)]
    return Progress([], beam, [[1.0]] * run.opening.reported_prefix_tokens)
