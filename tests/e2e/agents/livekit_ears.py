"""LiveKit's ears on a recording: ADDRESS RECORDING LANGUAGE; prints their events as JSON.

Runs in the environment of that tool, which is not the tests' own.
"""

import asyncio
import json
import sys
import wave

from livekit import rtc
from livekit.agents import APIError, stt

from earvoice.adapter.livekit_stt import EarvoiceSTT
from earvoice.client import TranslationOptions

CHUNK_MS = 20


def tell(event: stt.SpeechEvent) -> None:
    fields: dict[str, object] = {"kind": event.type.value}
    if event.recognition_usage is not None:
        fields["audio_s"] = event.recognition_usage.audio_duration
    for said in event.alternatives:
        fields |= {
            "text": said.text,
            "language": said.language,
            "source_languages": said.source_languages,
            "target_texts": said.target_texts,
            "confidence": said.confidence,
            "words": [[str(w), w.start_time, w.end_time] for w in said.words or ()],
        }
    print(json.dumps(fields), flush=True)


async def main(address: str, recording: str, language: str) -> None:
    options = TranslationOptions((language,), catch_up="every-segment")
    with wave.open(recording) as file:
        rate_hz, audio = file.getframerate(), file.readframes(file.getnframes())
    size = 2 * rate_hz * CHUNK_MS // 1000
    frames = [
        rtc.AudioFrame(part, rate_hz, 1, len(part) // 2)
        for part in (audio[at : at + size] for at in range(0, len(audio), size))
    ]
    async with EarvoiceSTT(address, options) as ears:
        async with ears.stream() as stream:
            for frame in frames:
                stream.push_frame(frame)
            stream.end_input()
            try:
                async for event in stream:
                    tell(event)
            except APIError as error:
                print(json.dumps({"kind": "error", "text": str(error)}))
                return
        print(
            json.dumps(
                {"kind": "at once", "text": (await ears.recognize(frames)).alternatives[0].text}
            )
        )


asyncio.run(main(*sys.argv[1:]))
