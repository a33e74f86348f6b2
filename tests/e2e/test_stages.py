"""A delay shows up in its own stage and in no other."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Mapping
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
ATTEMPTS = 3
OWN_STAGES = {
    "slow encoder": ("encoder_compute", COMPUTE_DELAY_MS),
    "slow decoder": ("decoder_compute", COMPUTE_DELAY_MS),
    "slow network": ("decoder_network", 2 * NETWORK_DELAY_MS),
    "starved loop": ("decision", TURN_MS),
}

Medians = Mapping[str, float]


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


def medians(outcome: Outcome) -> Medians:
    """Of each stage, in ms."""
    assert outcome.items, outcome.details
    return {
        stage: statistics.median(getattr(i.stage_timings, f"{stage}_ms") for i in outcome.items)
        for stage in STAGES
    }


@pytest.fixture(scope="module")
def attempt(tmp_path_factory) -> Callable[[int], dict[str, Medians]]:
    """The same sound through services of which one is slow, all at once; by number, from 0."""
    folder: Path = tmp_path_factory.mktemp("stages")
    write_tiny_checkpoint(folder / "model")
    attempts: list[dict[str, Medians]] = []

    def measured(number: int) -> dict[str, Medians]:
        while len(attempts) <= number:
            with service_yard(folder / str(len(attempts))) as yard:
                attempts.append(asyncio.run(measure(yard, {"MODEL_PATH": str(folder / "model")})))
        return attempts[number]

    return measured


async def measure(yard: ServiceYard, model: dict[str, str]) -> dict[str, Medians]:
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
    return {name: medians(outcome) for name, outcome in zip(addresses, outcomes, strict=True)}


def misplaced(measured: dict[str, Medians], name: str) -> dict[str, float]:
    """The stages that a delay did not move as it should have, by how much they moved, in ms."""
    own, delay_ms = OWN_STAGES[name]
    undisturbed, disturbed = measured["undisturbed"], measured[name]
    moved_ms = {stage: disturbed[stage] - undisturbed[stage] for stage in STAGES}
    return {
        stage: ms
        for stage, ms in moved_ms.items()
        if (ms < 0.8 * delay_ms if stage == own else abs(ms) > 0.5 * delay_ms)
    }


@pytest.mark.parametrize("name", OWN_STAGES)
def test_a_delay_shows_up_in_its_own_stage_alone(
    attempt: Callable[[int], dict[str, Medians]], name: str
):
    """By the difference of medians; what is injected is ten times what is there without.

    Whatever else the machine does shows up too, so a delay has a few attempts to be seen alone.
    """
    own, delay_ms = OWN_STAGES[name]
    wrong = {}
    for number in range(ATTEMPTS):
        measured = attempt(number)
        wrong = misplaced(measured, name)
        if delay_ms >= 10 * measured["undisturbed"][own] and not wrong:
            return
    if delay_ms < 10 * measured["undisturbed"][own]:
        pytest.skip(f"{own} is not quiet undisturbed: the machine is too busy")
    assert wrong == {}
