"""A Pipecat pipeline that hears a recording: ADDRESS RECORDING LANGUAGE; prints its frames as JSON.

Runs in the environment of that tool, which is not the tests' own.
"""

import asyncio
import json
import sys
import wave
from collections.abc import AsyncGenerator

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    TextFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from earvoice.adapter.pipecat_stt import EarvoiceSTTService
from earvoice.client import TranslationOptions

CHUNK_MS = 20


def tell(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


class Voice(TTSService):
    """Tells what it would say."""

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        tell("spoken", text=text)
        yield TTSAudioRawFrame(b"\0\0" * self.sample_rate, self.sample_rate, 1, context_id)


class Listener(FrameProcessor):
    """Tells the frames that pass it, errors on their way back too."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TextFrame):
            tell(type(frame).__name__, text=frame.text, language=getattr(frame, "language", None))
        if isinstance(frame, ErrorFrame):
            tell("error", text=frame.error)
        await self.push_frame(frame, direction)


async def main(address: str, recording: str, language: str) -> None:
    options = TranslationOptions((language,), catch_up="every-segment")
    stt = EarvoiceSTTService(address, options)
    pipeline = Pipeline([Listener(), stt, Listener(), Voice()])
    with wave.open(recording) as file:
        rate_hz, audio = file.getframerate(), file.readframes(file.getnframes())
    worker = PipelineWorker(
        pipeline, cancel_on_idle_timeout=False, params=PipelineParams(audio_in_sample_rate=rate_hz)
    )
    size = 2 * rate_hz * CHUNK_MS // 1000
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(*_: object) -> None:
        started.set()

    async def speak() -> None:
        await started.wait()
        for at in range(0, len(audio), size):
            await worker.queue_frame(InputAudioRawFrame(audio[at : at + size], rate_hz, 1))
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), speak())


asyncio.run(main(*sys.argv[1:]))
