"""A cascade: the shipped model's captions are the source words of a text model, both live.

Two sets of services run side by side. A caption's word is passed on as soon as it is known to be
complete, so that the text model writes while the speaker is still talking.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from earvoice.cli.command import CommandError
from earvoice.cli.local_services import ServiceChoices, run_services
from earvoice.cli.log_relay import ServiceLogs
from earvoice.client import (
    AudioFormat,
    Committed,
    EndOfUtterance,
    SegmentDone,
    Started,
    TranslationOptions,
    WaitK,
    connect,
    join_words,
)
from earvoice.client.audio import send_fast
from earvoice.client.text import write_words
from earvoice.evaluation.quality import score_quality
from earvoice.policies import format_policy
from earvoice.runtime.audio_format import WORDS
from earvoice.systems.turns import SILENCE_MS, SystemReport, read_turns, spoken_lag_ms
from earvoice.training.schedule import report

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterable, AsyncIterator, Sequence
    from pathlib import Path

    import numpy as np

    from earvoice.client import CommittedWord, TranslationClient, TranslationEvent
    from earvoice.systems.turns import Turn

TURNS, TRAINED = 60, 400
SPOKEN = AudioFormat("float32")
DIRECT = TranslationOptions(("de",), SPOKEN, catch_up="every-segment", min_confidence=0.0)
CAPTIONS = TranslationOptions(("en",), SPOKEN, catch_up="every-segment", min_confidence=0.0)
WAITED = (1, 3)


async def caption_words(
    captions: AsyncIterable[TranslationEvent], heard_ms: list[float]
) -> AsyncIterator[bytes]:
    """Yield each word of captions; a newline after an utterance's last word ends a sentence.

    A caption's word is complete when the next begins or its utterance has ended; until then a full
    stop may follow.

    Args:
        heard_ms: for each word yielded, the audio heard by then is appended here.
    """
    held, segment_end_ms = "", 0.0
    async for event in captions:
        match event:
            case Committed(words=words):
                for word in words:
                    if held and word.starts_word:
                        heard_ms.append(word.delay_ms)
                        yield write_words(held)
                        held = ""
                    held += word.text
            case SegmentDone():
                segment_end_ms = max(segment_end_ms, event.end_ms)
            case EndOfUtterance() if held:
                heard_ms.append(segment_end_ms)
                yield write_words(f"{held}\n")
                held = ""


Timed = list[tuple["CommittedWord", float]]
"""Committed words, each with the audio heard by then, in ms."""


async def translate_cascaded(
    speech: TranslationClient, text: TranslationClient, sound: bytes, policy: WaitK
) -> tuple[str, Timed]:
    """Return the captions and their translation."""
    shown: list[CommittedWord] = []

    async def captions() -> AsyncIterator[TranslationEvent]:
        async for event in speech.translate(send_fast([sound]), CAPTIONS):
            if isinstance(event, Committed):
                shown.extend(event.words)
            yield event

    heard_ms, written = list[float](), Timed()
    options = TranslationOptions(("de",), WORDS, policy=policy, catch_up="every-segment")
    async for event in text.translate(caption_words(captions(), heard_ms), options):
        if isinstance(event, Committed):
            for word in event.words:
                read_words = round(word.delay_ms / WORDS.position_ms(1))
                written.append((word, heard_ms[read_words - 1]))
    return join_words(shown), written


async def translate_directly(speech: TranslationClient, sound: bytes) -> tuple[str, Timed]:
    """Return the model's policy for the language, and the translation."""
    policy, written = "", Timed()
    async for event in speech.translate(send_fast([sound]), DIRECT):
        if isinstance(event, Started) and event.options.policy is not None:
            policy = format_policy(event.options.policy)
        if isinstance(event, Committed):
            written += [(word, word.delay_ms) for word in event.words]
    return policy, written


def run(options: argparse.Namespace) -> None:
    """Compare them; needs the checkpoint that `han` left in the work folder."""
    text_model = options.work / "han-3"
    if not text_model.is_dir():
        raise CommandError(
            f"{text_model} is not there: run python -m earvoice.systems han with this --work first"
        )
    turns = read_turns(options.data / "text", "dev", TURNS)
    report(f"{len(turns)} turns of restaurant dialogues, said by espeak-ng, held out from training")
    trained = read_turns(options.data / "text", "train", TRAINED)
    shown = SystemReport("cascade", "a cascade", trained, {"held out": turns})
    asyncio.run(_compare(shown, turns, options.model, text_model))
    shown.save(options.work)


async def _compare(
    shown: SystemReport, turns: Sequence[Turn], speech_model: Path, text_model: Path
) -> None:
    async with AsyncExitStack() as stack:
        speech, text = [await _open(stack, model.resolve()) for model in (speech_model, text_model)]
        sounds = [turn.recording.astype("<f4").tobytes() for turn in turns]
        policies, direct = zip(
            *[await translate_directly(speech, sound) for sound in sounds], strict=True
        )
        bleu = _tell(shown, direct, turns, trained="direct", written=policies[0])
        for k in WAITED:
            policy = WaitK(k, "adaptive", inclusive=True)
            both = [await translate_cascaded(speech, text, sound, policy) for sound in sounds]
            captions, written = zip(*both, strict=True)
            wrong = score_quality(captions, [turn.english for turn in turns], "en").wer
            report(f"cascade, wait-{k}; captions' WER {wrong:.1f}")
            draws = _tell(shown, written, turns, trained="cascade", written=f"wait-{k}")
            shown.difference(f"cascade, wait-{k}, minus the direct model", draws - bleu)


async def _open(stack: AsyncExitStack, model: Path) -> TranslationClient:
    choices = ServiceChoices(backend_settings={"MODEL_PATH": str(model)})
    running = await stack.enter_async_context(run_services(choices, ServiceLogs()))
    return await stack.enter_async_context(connect(running.addresses["policy"]))


def _tell(
    shown: SystemReport,
    timed: Sequence[Timed],
    turns: Sequence[Turn],
    *,
    trained: str,
    written: str,
) -> np.ndarray:
    """Report quality and lag behind the sound, without computation."""
    texts = [join_words([word for word, _ in each]) for each in timed]
    lags_ms = [
        spoken_lag_ms([heard_ms - SILENCE_MS for heard_ms in _word_times(each)], turn)
        for each, turn in zip(timed, turns, strict=True)
    ]
    return shown.row("held out", texts, lags_ms, trained=trained, written=written)


def _word_times(written: Timed) -> list[float]:
    """When each word's last piece was written."""
    times: list[float] = []
    for word, heard_ms in written:
        if word.starts_word or not times:
            times.append(heard_ms)
        else:
            times[-1] = heard_ms
    return times
