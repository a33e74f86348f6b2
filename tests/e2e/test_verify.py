"""`earvoice verify run`: a recorded run through three services of its own."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.client.audio import send_fast
from earvoice.client.translation_client import connect
from earvoice.evaluation.log import Record
from earvoice.evaluation.verification.runs import (
    RecordedRun,
    RunInstance,
    play_options,
    played_instance,
    read_recording,
)
from tests.e2e.running import Running, earvoice
from tests.e2e.test_evaluate import RECORDING
from tests.shared_data import ROOT, shared_data

pytestmark = pytest.mark.torch

RECORDING_MS = 8730.0
META = {
    "policy": "la",
    "segment_ms": 1600,
    "args": {"beam": 1, "prefix_size": 0, "no_repeat_ngram_size": 0, "data_bin": "x_none"},
}


@pytest.fixture(scope="module")
def golden() -> Path:
    """The papers' models and their runs, outside the repository."""
    return shared_data("golden/runs").parent


def verify(run: Path, model: Path, wav_folder: Path) -> tuple[int, list[str]]:
    done = earvoice("verify", "run", run, "--model", model, "--wav", wav_folder)
    return done.returncode, done.stdout.splitlines() or [done.stderr]


@pytest.mark.parametrize(
    "name", ["v10_avg_waitk3_adaptive", "v11_avg_streamatt_w8", "v10_none_edatt_beam1_a0.2"]
)
def test_a_run_of_the_papers_code_is_ours(golden: Path, tmp_path: Path, name: str):
    """The last instance of each: CTC word counts, long form, a decoder that sees every state."""
    file_name = f"{name}.json.gz"
    content = json.loads(gzip.decompress((golden / "runs" / file_name).read_bytes()))
    content["instances"] = content["instances"][-1:]
    run = write_run(tmp_path / file_name, content)
    status, lines = verify(run, golden / "models" / "t1", golden / "wav")
    assert lines[-1].startswith("1 instances, ")
    assert lines[-1].endswith(": 0 instances differ, in 0 places")
    assert status == 0


def test_one_wrong_token_is_found(services: Running, tmp_path: Path):
    """A run of our own: what is as it was played is no difference, what was changed is one."""
    instance = describe(asyncio.run(play(services.address)))
    changed = copy.deepcopy(instance) | {"index": 1}
    segment, step = next(item for item in enumerate(changed["trace"], 1) if item[1]["write"])
    step["write"][0] += 1
    content = {"meta": META, "instances": [instance, changed]}
    path = write_run(tmp_path / "run.json.gz", content)
    status, lines = verify(path, ROOT / "models" / "earvoice-en-x-small", RECORDING.parent)
    assert lines[-1].endswith(": 1 instances differ, in 1 places")
    assert lines[0].startswith(f"instance 1, segment {segment} ")
    assert "commit: recorded" in lines[0]
    assert status == 1


def write_run(path: Path, content: dict) -> Path:
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


async def play(address: str) -> RunInstance:
    """Translate the demo's recording as an agent would."""
    instance = RunInstance((), (), (), 0, RECORDING.name, RECORDING_MS)
    arguments = Record("run", META["args"])
    run = RecordedRun("run", META["policy"], arguments, META["segment_ms"], (instance,))
    audio, chunks = read_recording(instance, RECORDING.parent)
    options = replace(play_options(run), audio=audio, target_languages=("de",))
    async with (
        connect(address) as client,
        aclosing(client.translate(send_fast(chunks), options)) as events,
    ):
        return played_instance([event async for event in events])


def describe(played: RunInstance) -> dict:
    """Return what was played as the recorded runs tell it."""
    trace = []
    for segment in played.segments:
        step = {"type": "read", "write": list(segment.written)}
        if segment.hypothesis is not None:
            prefix = list(segment.hypothesis[: segment.prefix_count])
            step |= {"hypo": list(segment.hypothesis), "prefix": prefix}
        trace.append(step)
    return {
        "index": 0,
        "wav": RECORDING.name,
        "source_length": RECORDING_MS,
        "prediction": " ".join(played.words),
        "delays": played.delays_ms,
        "trace": trace,
    }
