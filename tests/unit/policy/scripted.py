"""Small doubles of the encoder and the decoder: scripted, without clocks or networks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from earvoice.policy.backend import (
    Encoded,
    GenerationEnd,
    GenerationRequest,
    GenerationSteps,
)
from earvoice.policy.decisions.base import Hypothesis, Token
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.timeline import HopTimings

RATE_HERTZ = 8000
FRAME_BYTES = 2
STATE_SAMPLES = 640
BLANK = 99


def make_token(
    token_id: int, text: str = "", *, starts: bool = True, attention: Sequence[float] = (1.0,)
) -> Token:
    """A token whose text is its id unless given."""
    return Token(token_id, (text or f"w{token_id}").encode(), starts, tuple(attention))


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

    voice: Callable[[int, int], VoiceActivity] = lambda start, end: VoiceActivity(
        end > start, start, end
    )
    start_sample: int = 0
    end_sample: int = 0
    audio: bytearray = field(default_factory=bytearray)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    compute_ms: float = 2.0
    replay_count: int = 0

    async def encode(self, audio: bytes) -> Encoded:
        """Answer with a state per 80 ms."""
        self._add(audio)
        self.calls.append(("encode", self.end_sample))
        return self._encoded(self.end_sample)

    async def finish(self, audio: bytes, end_sample: int) -> Encoded:
        """Answer for the last time."""
        self._add(audio)
        self.calls.append(("finish", end_sample))
        return self._encoded(end_sample)

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Begin another utterance."""
        self.calls.append(("reset", utterance, start_sample))
        self.start_sample = self.end_sample = start_sample

    def _add(self, audio: bytes) -> None:
        self.audio += audio
        self.end_sample += len(audio) // FRAME_BYTES

    def _encoded(self, end: int) -> Encoded:
        samples = end - self.start_sample
        states = samples // STATE_SAMPLES
        spans = [self.start_sample + (i + 1) * STATE_SAMPLES for i in range(states)]
        words = states // 4
        voice = self.voice(self.start_sample, end)
        evidence = Evidence(
            ctc_labels=[
                BLANK if i % 4 or ends > voice.speech_end_sample else i // 4
                for i, ends in enumerate(spans)
            ],
            blank_label=BLANK,
            span_end_samples=spans,
            complete_word_count=words,
            has_partial_word=states % 4 > 0,
            label_count=words * 2,
            last_label_end_sample=min(end, voice.speech_end_sample),
            frame_count=samples * 100 // RATE_HERTZ,
            voice_activity=voice,
            source_transcript="heard",
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
        """Yield the sentence after the prefix, a few steps at a time."""
        self.requests.append(request)
        halts = self.halts
        _, state_count = request.states  # type: ignore[misc]
        sentence = self._sentence(state_count)
        new = sentence[len(request.prefix) :][: request.max_new_tokens]
        elapsed = 0.0
        if request.beam_size > 1:
            yield self._beam(request, new, state_count)
            yield GenerationEnd(False, HopTimings(1.5, 1.0, 1.0))
            return
        for first in range(0, len(new), self.steps_per_answer):
            elapsed += 1.0
            tokens = new[first : first + self.steps_per_answer]
            yield GenerationSteps(tokens, None, HopTimings(elapsed + 0.5, elapsed, elapsed))
            if self.halts > halts:
                for late in new[first + self.steps_per_answer :][: self.late_tokens]:
                    yield GenerationSteps([late], None, HopTimings(elapsed, elapsed, elapsed))
                yield GenerationEnd(False, HopTimings(elapsed + 0.5, elapsed, elapsed))
                return
        row = tuple(float(i == state_count - 1) for i in range(state_count))
        yield GenerationSteps(
            [], make_token(2, attention=row), HopTimings(elapsed, elapsed, elapsed)
        )
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
        """Stop before the next answer."""
        self.halts += 1

    async def stay(self) -> None:
        """Nobody's patience ends here."""
