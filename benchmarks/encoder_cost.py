"""What one live stream costs the encoder, by stage: `python benchmarks/encoder_cost.py`.

Feeds noisy speech-like sound segment by segment into one session, as the policy service does, and
prints the mean milliseconds of each stage and the share of a core, the pass over the whole
utterance at its end included. It counts the processor time of
the one computing thread, so other processes on the machine matter little.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.encoder.model import EncoderModel, load_model
from earvoice.encoder.session import EncodeSession
from earvoice.encoder.settings import EncoderSettings
from earvoice.runtime.settings import load_settings, shipped_model_path


class Stopwatch:
    """Adds up the time spent in wrapped calls, by name."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = defaultdict(float)

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.spent_ms[name] += (time.thread_time() - began) * 1000

        return timed


class TimedModel:
    """A model whose features, detector and encoder are timed."""

    def __init__(self, model: EncoderModel, watch: Stopwatch) -> None:
        self._model = model
        self._watch = watch
        self.encode = watch.wrap("network", model.encode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def open_features(self) -> Any:
        return self._watch.wrap("features", self._model.open_features())

    def open_encoding(self) -> Any:
        return self._watch.wrap("network", self._model.open_encoding())

    def open_voice_activity(self) -> Any:
        return self._watch.wrap("voice activity", self._model.open_voice_activity())


def sound(seconds: float, rate_hz: int) -> bytes:
    """Voiced syllables over noise, int16."""
    time_s = np.arange(int(seconds * rate_hz)) / rate_hz
    voiced = sum(np.sin(2 * np.pi * 130 * k * time_s) / k for k in range(1, 20))
    envelope = np.clip(np.sin(2 * np.pi * 2.5 * time_s), 0, None)
    noise = np.random.default_rng(0).standard_normal(len(time_s)) * 50
    return (voiced * envelope * 4000 + noise).astype("<i2").tobytes()


def run(model: EncoderModel, seconds: float, segment_ms: int, rate_hz: int) -> None:
    watch = Stopwatch()
    session = EncodeSession(TimedModel(model, watch), math.ceil(seconds * 1000))
    audio_format = types_pb2.AudioFormat(
        encoding=types_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=rate_hz
    )
    session.apply(pb.EncodeRequest(open=pb.EncodeOpen(audio_format=audio_format)))
    data = sound(seconds, rate_hz)
    size = 2 * rate_hz * segment_ms // 1000
    segments = [data[begin : begin + size] for begin in range(0, len(data), size)]
    costs_ms = []
    for revision, segment in enumerate(segments, start=1):
        began = time.thread_time()
        audio = pb.EncodeAudio(revision=revision, data=segment)
        session.apply(pb.EncodeRequest(audio=audio))
        costs_ms.append((time.thread_time() - began) * 1000)
    spent_ms = dict(watch.spent_ms)
    began = time.thread_time()
    end_sample = int(max(0.0, seconds - 0.5) * rate_hz)
    finish = pb.EncodeFinish(revision=len(segments) + 1, end_sample=end_sample)
    session.apply(pb.EncodeRequest(finish=finish))
    finish_ms = (time.thread_time() - began) * 1000
    print(
        f"{seconds:g} s at {rate_hz} Hz in segments of {segment_ms} ms, CPU milliseconds a segment:"
    )
    for name, total in spent_ms.items():
        print(f"  {name:16}{total / len(segments):8.2f}")
    print(f"  {'rest':16}{(sum(costs_ms) - sum(spent_ms.values())) / len(segments):8.2f}")
    print(f"  {'all, median':16}{statistics.median(costs_ms):8.2f}")
    print(f"  {'last segment':16}{costs_ms[-1]:8.2f}")
    print(f"  {'finish, 0.5 s ago':18}{finish_ms:6.2f}")
    print(f"  share of a core {(sum(costs_ms) + finish_ms) / seconds / 1000:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=shipped_model_path())
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--segment-ms", type=int, help="(the model's)")
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="fp32")
    parser.add_argument("--rates-hz", type=int, nargs="+", default=[16000, 48000])
    arguments = parser.parse_args()
    settings = load_settings(
        EncoderSettings, model_path=arguments.model, precision=arguments.precision
    )
    model = load_model(settings)
    segment_ms = arguments.segment_ms or model.description.default_segment_ms
    for rate_hz in arguments.rates_hz:
        run(model, arguments.seconds, segment_ms, rate_hz)


if __name__ == "__main__":
    main()
