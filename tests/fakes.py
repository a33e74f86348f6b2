"""Doubles of what each service works with: scripted, without weights, clocks or calls."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from earvoice.api.v1 import types_pb2
from earvoice.decoder.generation import Generation
from earvoice.decoder.strategy import Hypothesis as BeamHypothesis
from earvoice.decoder.strategy import (
    PredictedToken,
    Preparation,
    Progress,
    Prompt,
    ServedModel,
    StateBlock,
    Strategy,
    TokenTable,
    block_of,
)
from earvoice.encoder.audio import Samples
from earvoice.encoder.network import Encoding, LabelKind
from earvoice.policies.base import Hypothesis, Token
from earvoice.policy.backend import (
    Encoded,
    GenerationEnd,
    GenerationRequest,
    GenerationSteps,
)
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.timeline import HopTimings
from tests.requests import STATE_DIMENSION

RATE_HERTZ = 8000
FRAME_BYTES = 2
STATE_SAMPLES = 640
BLANK = 99


def make_token(
    token_id: int,
    text: str = "",
    *,
    starts: bool = True,
    attention: Sequence[float] = (1.0,),
    probability: float = 1.0,
) -> Token:
    """A token whose text is its id unless given."""
    utf8 = (text or f"w{token_id}").encode()
    return Token(token_id, utf8, starts, tuple(attention), math.log(probability))


def make_hypothesis(
    tokens: Sequence[Token], prefix: Sequence[int] = (), *, ended: bool = True
) -> Hypothesis:
    """A hypothesis that ends in end of sentence unless told otherwise."""
    return Hypothesis(tuple(prefix), tuple(tokens), make_token(2) if ended else None)


@dataclass
class ScriptedEncoder:
    """Hears one word per 320 ms and speech everywhere, unless a voice script says otherwise.

    Records what it was sent, so that tests can look at segments and utterances.
    """

    voice: Callable[[int, int], VoiceActivity] = lambda start, end: VoiceActivity(end > start, end)
    start_sample: int = 0
    end_sample: int = 0
    audio: bytearray = field(default_factory=bytearray)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    compute_ms: float = 2.0
    replay_count: int = 0
    partial_transcript: str = ""
    hears_labels: bool = True

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self.audio += audio
        self.end_sample += len(audio) // FRAME_BYTES
        name, end = ("encode", self.end_sample) if end_sample is None else ("finish", end_sample)
        self.calls.append((name, end))
        return self._encoded(end, "" if end_sample is None else "heard")

    async def reset(self, utterance: int, start_sample: int) -> None:
        self.calls.append(("reset", utterance, start_sample))
        self.start_sample = self.end_sample = start_sample

    def _encoded(self, end: int, transcript: str = "") -> Encoded:
        samples = end - self.start_sample
        states = samples // STATE_SAMPLES
        spans = [self.start_sample + (i + 1) * STATE_SAMPLES for i in range(states)]
        words = states // 4
        voice = self.voice(self.start_sample, end)
        evidence = Evidence(
            ctc_labels=[
                BLANK
                if i % 4 or ends > voice.speech_end_sample or not self.hears_labels
                else i // 4
                for i, ends in enumerate(spans)
            ],
            blank_label=BLANK,
            span_end_samples=spans,
            complete_word_count=words,
            has_partial_word=states % 4 > 0,
            label_count=words * 2 if self.hears_labels else 0,
            frame_count=samples * 100 // RATE_HERTZ,
            voice_activity=voice,
            source_transcript=transcript if self.hears_labels else "",
            partial_transcript="" if transcript else self.partial_transcript,
        )
        return Encoded((self.start_sample, states), evidence, HopTimings(3.0, 2.5, self.compute_ms))


@dataclass
class ScriptedDecoder:
    """Says one word per 4 states, each attending to its own place; obeys prefix and halt.

    Args of the word function: the word's number in the utterance and the number of states, so
    that tests can make hypotheses that change.
    """

    word: Callable[[int, int], list[Token]] | None = None
    steps_per_answer: int = 1
    late_tokens: int = 0
    """How many tokens are on their way when the halt comes."""
    source: Callable[[int], list[Token]] | None = None
    """Of the number of states: the text that is translated, which the first answer tells."""
    requests: list[GenerationRequest] = field(default_factory=list)
    halts: int = 0
    replay_count: int = 0

    def _sentence(self, state_count: int) -> list[Token]:
        tokens: list[Token] = []
        for number in range(state_count // 4 + 1):
            if self.word is not None:
                tokens += self.word(number, state_count)
            else:
                place = min(number * 4 + 2, state_count - 1)
                row = tuple(float(i == place) for i in range(state_count))
                tokens.append(make_token(10 + number, attention=row))
        return tokens

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        self.requests.append(request)
        halts = self.halts
        _, state_count = request.states  # type: ignore[misc]
        sentence = self._sentence(state_count)
        left = sentence[len(request.prefix) :]
        new = left[: request.max_new_tokens]
        hits_limit = len(left) > len(new)
        elapsed = 0.0
        source = self.source(state_count) if self.source is not None else ()
        if request.beam_size > 1:
            yield self._beam(request, new, state_count)
            yield GenerationEnd(hits_limit, HopTimings(1.5, 1.0, 1.0))
            return
        for first in range(0, len(new), self.steps_per_answer):
            elapsed += 1.0
            tokens = new[first : first + self.steps_per_answer]
            timings = HopTimings(elapsed + 0.5, elapsed, elapsed)
            yield GenerationSteps(tokens, None, timings, source=() if first else source)
            if self.halts > halts:
                for late in new[first + self.steps_per_answer :][: self.late_tokens]:
                    yield GenerationSteps([late], None, HopTimings(elapsed, elapsed, elapsed))
                yield GenerationEnd(False, HopTimings(elapsed + 0.5, elapsed, elapsed))
                return
        if hits_limit:
            yield GenerationEnd(True, HopTimings(elapsed, elapsed, elapsed))
            return
        row = tuple(float(i == state_count - 1) for i in range(state_count))
        end, timings = make_token(2, attention=row), HopTimings(elapsed, elapsed, elapsed)
        yield GenerationSteps([], end, timings, source=() if new else source)
        yield GenerationEnd(False, HopTimings(elapsed, elapsed, elapsed))

    def _beam(
        self, request: GenerationRequest, new: list[Token], state_count: int
    ) -> GenerationSteps:
        """Two hypotheses that differ in the last token."""
        row = tuple(float(i == state_count - 1) for i in range(state_count))
        ids = [token.token_id for token in new]
        beam = [ids, [*ids[:-1], BLANK]] if request.all_hypotheses else []
        return GenerationSteps(
            new, make_token(2, attention=row), HopTimings(1.5, 1.0, 1.0), alternatives=beam
        )

    def halt(self) -> None:
        self.halts += 1

    async def keep_alive(self) -> None:
        """Nobody's patience ends here."""


LABEL_BLANK = 4


def described_model(**changes) -> types_pb2.ModelDescription:
    """A model as it is told on the wire."""
    described = {
        "name": "scripted",
        "hash": "h1",
        "version": "1",
        "source_language_code": "en",
        "target_language_codes": ["de"],
        "decoder_layer_count": 6,
        "precision": types_pb2.ELEMENT_TYPE_FLOAT32,
        "default_policy": "edatt",
        "default_alpha": 0.25,
        "default_lambda_states": 2,
        "default_attention_layer": 4,
        "default_frames": 4,
        "default_segment_ms": 800,
    }
    return types_pb2.ModelDescription(**described | changes)


ENCODER_DESCRIPTION = described_model(hash="c0ffee")


class FakeFeatures:
    """A frame every 160 samples once 400 are there: the mean of its first 160 samples."""

    def __init__(self) -> None:
        self._waiting = np.zeros(0, np.float32)

    def accept(self, samples: Samples) -> Samples:
        heard = np.concatenate([self._waiting, samples])
        count = FakeNetwork.feature_frame_count(len(heard))
        self._waiting = heard[count * 160 :]
        return heard[: count * 160].reshape(count, 160).mean(axis=1, keepdims=True)


class FakeVoiceActivity:
    """Speech is a window whose loudest sample is at least 0.5."""

    def __init__(self) -> None:
        self._waiting = np.zeros(0, np.float32)

    def accept(self, samples: Samples) -> list[float]:
        heard = np.concatenate([self._waiting, samples])
        count = len(heard) // 512
        self._waiting = heard[count * 512 :]
        windows = heard[: count * 512].reshape(count, 512)
        return [float(peak >= 0.5) for peak in np.abs(windows).max(axis=1)]


class FakeNetwork:
    """One state for every 4 feature frames; its label is 0, 1, 2, 3, 0, ... and last a blank."""

    description = ENCODER_DESCRIPTION
    blank = LABEL_BLANK
    dimension = 1
    feature_bins = 1
    feature_context_frames = 0
    encoder_frame_ms = 40
    label_kinds: Sequence[LabelKind] = (
        LabelKind.START,
        LabelKind.INNER,
        LabelKind.START,
        LabelKind.SILENT,
        LabelKind.SILENT,
    )

    def __init__(self) -> None:
        self.encoded_frames: list[int] = []

    def open_features(self) -> Callable[[Samples], Samples]:
        return FakeFeatures().accept

    @staticmethod
    def feature_frame_count(sample_count: int) -> int:
        return max(0, (sample_count - 240) // 160)

    def open_voice_activity(self) -> Callable[[Samples], list[float]]:
        return FakeVoiceActivity().accept

    def encode(self, features: Samples) -> Encoding:
        self.encoded_frames.append(len(features))
        states = features[::4]
        labels = (*(index % 4 for index in range(len(states) - 1)), LABEL_BLANK)
        return Encoding(
            states=states.astype("<f4").tobytes(),
            labels=labels,
            run_lengths=(1,) * len(states),
            frame_labels=labels,
        )

    def open_encoding(self) -> Callable[[Samples], Encoding]:
        return self.encode

    def transcribe(self, labels: Sequence[int]) -> str:
        return " ".join(str(label) for label in labels)


END_TOKEN = 2
VOCABULARY_SIZE = 50


def served_model() -> ServedModel:
    """A model of 50 tokens and 4 layers that writes German, and French with a tag."""
    return ServedModel(
        description=described_model(
            hash="ab" * 32,
            target_language_codes=["de", "fr"],
            decoder_layer_count=4,
            decoder_head_count=2,
            default_attention_layer=3,
        ),
        language_tokens={"de": (), "fr": (49,)},
        dimension=STATE_DIMENSION,
        tokens=TokenTable(
            tuple(b"" for _ in range(VOCABULARY_SIZE)), (False,) * VOCABULARY_SIZE, END_TOKEN
        ),
    )


def state_block(count: int = 2, revision: int = 1) -> StateBlock:
    """Zeros of the right size."""
    return block_of(np.zeros((count, STATE_DIMENSION), np.float32), revision)


@dataclass
class NotingEngine:
    """Keeps what is submitted."""

    submitted: list[Generation] = field(default_factory=list)
    wakes: int = 0

    def submit(self, generation: Generation) -> None:
        generation.outbox.expect_generation()
        self.submitted.append(generation)

    def wake(self) -> None:
        self.wakes += 1


@dataclass
class ScriptedRun:
    """What is left to say; an exception is raised instead of said."""

    left: list[int | Exception]
    prompt: Prompt
    searched: list[PredictedToken] = field(default_factory=list)


@dataclass
class ScriptedPreparation(ScriptedRun, Preparation):
    """Is over when all is said."""

    @property
    def is_over(self) -> bool:
        return not self.left


class ScriptedStrategy(Strategy):
    """Says the same script in every session, or the one that belongs to a revision.

    Args:
        first: by revision, what is to be said once before the script.
    """

    def __init__(
        self,
        scripts: dict[int, Sequence[int | Exception]],
        first: dict[int, Sequence[int | Exception]] | None = None,
    ) -> None:
        self._scripts = scripts
        self._first = dict(first or {})
        self.batches: list[int] = []
        self.begun: list[Prompt] = []

    def prepare(self, states: StateBlock, forced: Sequence[int]) -> ScriptedPreparation | None:
        first = self._first.pop(states.message.states_id.revision, None)
        prompt = Prompt((*forced,), (), 1, forbid_end=False)
        return None if first is None else ScriptedPreparation([*first], prompt)

    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[ScriptedRun, Progress]:
        """Accept the agreeing part of the draft and say one token more."""
        self.begun.append(prompt)
        run = ScriptedRun(list(self._scripts[states.message.states_id.revision]), prompt)
        if prompt.beam:
            return run, _searched(run)
        choices = []
        for token in prompt.draft:
            if run.left[0] != token:
                break
            choices.append(_choice(run, from_draft=True))
        if not choices or choices[-1].token != END_TOKEN:
            choices.append(_choice(run))
        return run, Progress(choices, prefix_attention=[[1.0]] * prompt.reported_prefix_tokens)

    def step(self, runs: Sequence[ScriptedRun]) -> list[Progress]:
        self.batches.append(len(runs))
        for run in runs:
            if isinstance(run.left[0], Exception):
                raise run.left[0]
        return [_searched(run) if run.prompt.beam else Progress([_choice(run)]) for run in runs]


def _choice(run: ScriptedRun, *, from_draft: bool = False) -> PredictedToken:
    token = run.left.pop(0)
    if isinstance(token, Exception):
        raise token
    return PredictedToken(
        token, -0.5, [1.0], near_tie=token == VOCABULARY_SIZE - 1, from_draft=from_draft
    )


def _searched(run: ScriptedRun) -> Progress:
    """A beam of two: the script, and its first token alone."""
    plan = run.prompt.beam
    assert plan is not None
    run.searched.append(_choice(run))
    if run.searched[-1].token != END_TOKEN and len(run.searched) < plan.max_new_tokens:
        return Progress([], near_tie=True)
    beam = [BeamHypothesis(run.searched, -0.5), BeamHypothesis(run.searched[:1], -0.7)]
    return Progress([], beam, [[1.0]] * run.prompt.reported_prefix_tokens)
