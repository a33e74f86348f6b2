"""A delay shows up in its own stage and in no other."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.telemetry.schema import STAGES
from tests.e2e.calling import Outcome, Request, call, noise, paced
from tests.e2e.running import ServiceYard, service_yard
from tests.proxy import open_proxy
from tests.tiny_model import write_tiny_checkpoint

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

SECONDS = 14
COMPUTE_DELAY_MS = 200
NETWORK_DELAY_MS = 50
TURN_MS = 200
# A delay that is there lasts at least so much of what it should.
SHOWN = 0.8
OWN_STAGES = {
    "slow encoder": ("encoder_compute", COMPUTE_DELAY_MS),
    "slow decoder": ("decoder_compute", COMPUTE_DELAY_MS),
    "slow network": ("decoder_network", 2 * NETWORK_DELAY_MS),
    "starved loop": ("decision", TURN_MS),
}


async def late(audio: bytes, delay_s: float) -> AsyncIterator[Request]:
    """Begins later: streams that begin one after the other do not meet at the encoder.

    Every segment commits a word.
    """
    await asyncio.sleep(delay_s)
    stream = paced(
        audio,
        target_language_codes=["de"],
        policy=policy_pb.DecisionPolicy(hold_n={"n": 0}),
        catch_up=pb.CATCH_UP_MERGE,
        disable_guards=True,
        enable_stage_timings=True,
        segment_duration={"seconds": 1},
        endpointing={"disabled": True},
        commit_unit=pb.COMMIT_UNIT_TOKEN,
    )
    async for message in stream:
        yield message


def stage_times_ms(outcome: Outcome, stage: str) -> list[float]:
    """Of every word."""
    assert outcome.items, outcome.details
    return [getattr(item.stage_timings, f"{stage}_ms") for item in outcome.items]


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict[str, Outcome]:
    """The same sound through services of which one is slow, all at once."""
    folder: Path = tmp_path_factory.mktemp("stages")
    write_tiny_checkpoint(folder / "model")
    with service_yard(folder / "services") as yard:
        return asyncio.run(measure(yard, {"MODEL_PATH": str(folder / "model")}))


async def measure(yard: ServiceYard, model: dict[str, str]) -> dict[str, Outcome]:
    """Start what is needed, stream, and stop the clock."""
    backends = [
        yard.start("encoder", delay_ms=0, **model),
        yard.start("decoder", delay_ms=0, **model),
        yard.start("encoder", delay_ms=COMPUTE_DELAY_MS, **model),
        yard.start("decoder", delay_ms=COMPUTE_DELAY_MS, **model),
    ]
    encoder, decoder, slow_encoder, slow_decoder = [service.address() for service in backends]
    async with open_proxy(decoder, NETWORK_DELAY_MS / 1000) as slow_network:
        ways = {
            "undisturbed": (encoder, decoder, None),
            "slow encoder": (slow_encoder, decoder, None),
            "slow decoder": (encoder, slow_decoder, None),
            "slow network": (encoder, slow_network.address, None),
            "starved loop": (encoder, decoder, TURN_MS),
        }
        policies = {
            name: yard.start("policy", delay_ms=delay, ENCODER_TARGET=e, DECODER_TARGET=d)
            for name, (e, d, delay) in ways.items()
        }
        addresses = {n: await asyncio.to_thread(p.address) for n, p in policies.items()}
        audio = noise(SECONDS)
        outcomes = await asyncio.gather(
            *(
                call(address, late(audio, place / len(addresses)))
                for place, address in enumerate(addresses.values())
            )
        )
    return dict(zip(addresses, outcomes, strict=True))


@pytest.mark.parametrize("name", OWN_STAGES)
def test_a_delay_shows_up_in_its_own_stage_alone(measured: dict[str, Outcome], name: str):
    """Most words have it there, and in each other stage there are words without it.

    So nothing is asked of how fast the machine is: what else it does makes every stage longer, and
    would have to do so for every word.
    """
    own, delay_ms = OWN_STAGES[name]
    assert statistics.median(stage_times_ms(measured[name], own)) >= SHOWN * delay_ms
    assert min(stage_times_ms(measured["undisturbed"], own)) < SHOWN * delay_ms
    shortest_ms = {
        stage: min(stage_times_ms(measured[name], stage)) for stage in STAGES if stage != own
    }
    assert max(shortest_ms.values()) < SHOWN * delay_ms, shortest_ms
