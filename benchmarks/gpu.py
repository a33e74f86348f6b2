"""What only a GPU can show, in nine minutes: `make gpu`, or `python benchmarks/gpu.py`.

Each step prints its rows as they come and writes them to the JSON file, so that the first minutes
give numbers even if a later step fails. Steps for which no time is left are listed.

* **same words**: the shipped model's words for a recording, from services on the device, compared
  with those from services on the CPU in fp32. In fp32 on the device they must be equal.
* **device tests**: `tests/models/test_device.py`.
* **golden run**: `earvoice verify run` of the papers' model through services on the device, where
  `EARVOICE_SHARED_DATA` names the reference data.
* **sessions**: seconds of audio a second for a number of sessions at full speed, every segment
  decided; then live: how late a segment's decision comes after its audio, and the words of the
  shipped model. Presets such as `paper` have random weights, so their words mean nothing and are
  not counted.
* **training**: steps a second of the preset: cross-entropy and CTC, forward, backward and AdamW.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from live_streams import DEMO, begin_delays_s, percentile, read_streams
from service_processes import run_service_processes
from torch.nn import functional

from earvoice.client import (
    AudioFormat,
    Committed,
    SegmentDone,
    Summary,
    TranslationClient,
    TranslationOptions,
    connect,
)
from earvoice.client.audio import FAST_CHUNK_MS, REALTIME_CHUNK_MS, pace, send_fast
from earvoice.models.checkpoint import load_config, save_checkpoint
from earvoice.models.config import PRESETS, preset
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.runtime.settings import shipped_model_path

ROOT = Path(__file__).parents[1]
NO_DEVICE = 69
"""Exit status if there is no such device: EX_UNAVAILABLE of sysexits.h."""
SHIPPED = "shipped"
GOLDEN_RUN = "v11_avg_streamatt_w8.json.gz"
TRAINING_BATCH, TRAINING_FRAMES, TRAINING_TOKENS = 16, 1000, 40

Row = dict[str, object]


@dataclass
class Report:
    """Rows, printed and written as they come."""

    path: Path
    deadline_s: float
    rows: list[Row] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return any("failed" in row for row in self.rows)

    def take(self, step: str, **facts: object) -> None:
        row: Row = {"step": step, **facts}
        self.rows.append(row)
        self.path.write_text(json.dumps(self.rows, indent=2) + "\n", encoding="utf8")
        told = "  ".join(f"{name} {_short(value)}" for name, value in facts.items())
        print(f"{step:28} {told}", flush=True)

    def try_out(self, step: str, work: Callable[[], Iterator[Row]]) -> None:
        """Take a step's rows; a failure becomes a row, too, and does not stop the next step."""
        if time.monotonic() > self.deadline_s:
            self.take(step, left_out="no time is left")
            return
        try:
            for row in work():
                self.take(step, **row)
        except Exception as error:  # noqa: BLE001 - reported, and the exit status says so
            traceback.print_exc()
            self.take(step, failed=f"{type(error).__name__}: {error}")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Heard:
    """The results of some streams."""

    words: list[str] = field(default_factory=list)
    word_lags_ms: list[float] = field(default_factory=list)
    segment_lags_ms: list[float] = field(default_factory=list)
    merged_segments: int = 0


@dataclass(frozen=True)
class Plan:
    device: str
    counts: tuple[int, ...]
    seconds: float
    models: tuple[str, ...]
    precisions: tuple[str, ...]


@contextmanager
def settings(device: str, precision: str, model: Path) -> Iterator[None]:
    """Make services that start now use this device, precision and model."""
    wanted = {"EARVOICE_POLICY_SESSION_LIMIT": "1000"}
    for service in ("ENCODER", "DECODER"):
        wanted |= {
            f"EARVOICE_{service}_DEVICE": device,
            f"EARVOICE_{service}_PRECISION": precision,
            f"EARVOICE_{service}_MODEL_PATH": str(model),
            f"EARVOICE_{service}_SESSION_LIMIT": "1000",
        }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def listen(
    client: TranslationClient,
    audio: bytes,
    options: TranslationOptions,
    heard: Heard,
    delay_s: float = 0.0,
) -> None:
    await asyncio.sleep(delay_s)
    chunk_ms = REALTIME_CHUNK_MS if options.paced else FAST_CHUNK_MS
    size = options.audio.chunk_bytes(chunk_ms)
    pieces = [audio[at : at + size] for at in range(0, len(audio), size)]
    origin_s = 0.0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal origin_s
        origin_s = time.monotonic()
        async for chunk in pace(pieces, options.audio) if options.paced else send_fast(pieces):
            yield chunk

    async with aclosing(client.translate(chunks(), options)) as events:
        async for event in events:
            match event:
                case Committed():
                    heard.words += [word.text for word in event.words]
                    heard.word_lags_ms += [w.received_ms - w.source_end_ms for w in event.words]
                case SegmentDone():
                    late_ms = 1000 * (time.monotonic() - origin_s) - event.end_ms
                    heard.segment_lags_ms.append(late_ms)
                case Summary():
                    heard.merged_segments += event.merged_segments


def said_on(device: str, precision: str, seconds: float) -> list[str]:
    """The shipped model's words for the first seconds of the recording."""

    async def run() -> list[str]:
        audio_format, (audio,) = read_streams(DEMO, 1, seconds)
        heard = Heard()
        async with run_service_processes() as services, connect(services.address) as client:
            options = await _options(client, audio_format, live=False)
            await listen(client, audio, options, heard)
        return heard.words

    with settings(device, precision, shipped_model_path()):
        return asyncio.run(run())


async def _options(
    client: TranslationClient, audio: AudioFormat, *, live: bool
) -> TranslationOptions:
    target = (await client.list_models()).models[0].target_languages[0]
    mode = "merge" if live else "every-segment"
    return TranslationOptions((target,), audio, catch_up=mode, paced=live)


def same_words(plan: Plan) -> Iterator[Row]:
    expected = said_on("cpu", "fp32", plan.seconds)
    for precision in plan.precisions:
        said = said_on(plan.device, precision, plan.seconds)
        same = said == expected
        yield {"precision": precision, "words": len(said), "same_as_on_the_cpu": same}
        if precision == "fp32" and not same:
            raise ValueError(f"on the CPU: {' '.join(expected)}; here: {' '.join(said)}")


def device_tests(plan: Plan) -> Iterator[Row]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"]
    chosen = ["tests/models/test_device.py", "-k", plan.device]
    done = subprocess.run(
        [*command, *chosen], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ValueError(done.stdout[-4000:])
    yield {"pytest": done.stdout.splitlines()[-1]}


def golden_run(plan: Plan) -> Iterator[Row]:
    golden = Path(os.environ.get("EARVOICE_SHARED_DATA", ROOT.parent / "shared")) / "golden"
    if not golden.is_dir():
        yield {"left_out": "the reference data is not here (EARVOICE_SHARED_DATA)"}
        return
    run, model = golden / "runs" / GOLDEN_RUN, golden / "models" / "t1"
    command = [sys.executable, "-m", "earvoice.cli", "verify", "run", str(run)]
    command += ["--model", str(model), "--wav", str(golden / "wav")]
    with settings(plan.device, "fp32", model):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    last = (done.stdout or done.stderr).splitlines()[-1]
    if done.returncode != 0:
        raise ValueError(last)
    yield {"verify": last}


def sessions(plan: Plan, report: Report, name: str, model: Path, precision: str) -> Iterator[Row]:
    """Rows of one pair of services, for each number of sessions."""
    with settings(plan.device, precision, model), asyncio.Runner() as runner:
        services = run_service_processes()
        address = runner.run(services.__aenter__()).address
        try:
            for count in plan.counts:
                if time.monotonic() > report.deadline_s:
                    yield {"sessions": count, "left_out": "no time is left"}
                    continue
                yield runner.run(_measured(address, name, count, plan.seconds))
        finally:
            runner.run(services.__aexit__(None, None, None))


async def _measured(address: str, name: str, count: int, seconds: float) -> Row:
    audio_format, streams = read_streams(DEMO, count, seconds)
    fast, live = Heard(), Heard()
    async with connect(address) as client:
        options = await _options(client, audio_format, live=False)
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for audio in streams:
                group.create_task(listen(client, audio, options, fast))
        rate = count * seconds / (time.monotonic() - began_s)
        options = await _options(client, audio_format, live=True)
        async with asyncio.TaskGroup() as group:
            for audio, delay_s in zip(streams, begin_delays_s(count), strict=True):
                group.create_task(listen(client, audio, options, live, delay_s))
    row: Row = {
        "sessions": count,
        "audio_s_per_s": rate,
        "segment_lag_p95_ms": percentile(live.segment_lags_ms, 95),
        "merged": live.merged_segments,
    }
    if name == SHIPPED:
        row["word_lag_p95_ms"] = percentile(live.word_lags_ms, 95)
    return row


def written_model(name: str, folder: Path) -> Path:
    """A model of a preset's sizes with random weights, and the shipped model's pieces."""
    shipped = shipped_model_path()
    pieces = [(shipped / f"{side}.model").read_bytes() for side in ("source", "target")]
    known = load_config(shipped)
    config = replace(
        preset(name),
        source_pieces=len(Vocabulary(pieces[0])),
        target_pieces=known.target_pieces,
        target_languages=known.target_languages,
    )
    torch.manual_seed(1)
    path = folder / name
    save_checkpoint(
        path,
        config,
        SpeechTranslationModel(config).state_dict(),
        normalisation=FeatureNormalisation.identity(),
        source_model=pieces[0],
        target_model=pieces[1],
    )
    return path


def training(plan: Plan, name: str) -> Iterator[Row]:
    """Train on random clips of 10 s (1 s on a CPU); what is learnt does not matter to the clock."""
    batch, frames = TRAINING_BATCH, TRAINING_FRAMES
    if plan.device == "cpu":
        batch, frames = 1, TRAINING_FRAMES // 10
    device = torch.device(plan.device)
    torch.manual_seed(1)
    config = preset(name)
    network = SpeechTranslationModel(config).to(device).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    features = torch.randn(batch, frames, config.mel_bins, device=device)
    lengths = torch.full((batch,), frames, device=device)
    tokens = torch.randint(4, config.target_pieces, (batch, TRAINING_TOKENS), device=device)
    labels = torch.randint(4, config.source_pieces, (batch, 8), device=device)

    def step() -> float:
        logits, encoded = network(features, lengths, tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss = loss + functional.ctc_loss(
            encoded.ctc_log_probs.transpose(0, 1),
            labels,
            encoded.ctc_lengths,
            torch.full((batch,), labels.shape[1], device=device),
            blank=config.blank,
            zero_infinity=True,
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    first = step()
    count, began_s = 0, time.monotonic()
    while (spent_s := time.monotonic() - began_s) < plan.seconds:
        last = step()
        count += 1
    yield {"batch": batch, "frames": frames, "steps_per_s": count / spent_s, "loss": [first, last]}


def machine(plan: Plan) -> Iterator[Row]:
    facts: Row = {"torch": torch.__version__, "device": plan.device}
    if plan.device == "cuda":
        about = torch.cuda.get_device_properties(0)
        facts |= {
            "name": about.name,
            "GiB": about.total_memory / 2**30,
            "capability": f"{about.major}.{about.minor}",
        }
    yield facts


def run(plan: Plan, report: Report, folder: Path) -> None:
    report.try_out("machine", lambda: machine(plan))
    report.try_out("same words", lambda: same_words(plan))
    cells = [(name, precision) for name in plan.models for precision in plan.precisions]
    for number, (name, precision) in enumerate(cells):
        path = shipped_model_path() if name == SHIPPED else folder / name
        if not path.exists():
            written_model(name, folder)
        work = partial(sessions, plan, report, name, path, precision)
        report.try_out(f"{name}, {precision}", work)
        if number == 0:
            report.try_out("device tests", lambda: device_tests(plan))
            report.try_out("golden run", lambda: golden_run(plan))
            for other in set(plan.models) - {SHIPPED}:
                report.try_out(f"training {other}", partial(training, plan, other))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sessions", type=int, nargs="+", default=(1, 8, 64))
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each stream")
    parser.add_argument(
        "--models", nargs="+", choices=(SHIPPED, *PRESETS), default=(SHIPPED, "paper")
    )
    parser.add_argument("--precisions", nargs="+", default=("fp32", "bf16", "fp16"))
    parser.add_argument("--minutes", type=float, default=8.0, help="nothing is begun after that")
    parser.add_argument("--json", type=Path, default=ROOT / "gpu.json")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device on this machine: there is nothing to show", flush=True)
        return NO_DEVICE
    plan = Plan(
        arguments.device,
        tuple(arguments.sessions),
        arguments.seconds,
        tuple(arguments.models),
        tuple(arguments.precisions),
    )
    report = Report(arguments.json, time.monotonic() + 60 * arguments.minutes)
    with tempfile.TemporaryDirectory(prefix="earvoice-gpu-") as folder:
        run(plan, report, Path(folder))
    return 1 if report.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
