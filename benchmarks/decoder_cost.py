"""What decoding costs on this machine: one prefill, one step alone, of a batch, of a beam.

Processor time, so that other work on the machine disturbs less.

    python benchmarks/decoder_cost.py --preset paper --states 100
    python benchmarks/decoder_cost.py --model models/earvoice-en-x-small

Weights of a preset are random; the cost is that of trained ones.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import BeamPlan, Opening
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.precision import DTYPES
from earvoice.models.preset import PRESETS
from earvoice.models.translation import SpeechTranslationModel

PREFILL_TOKENS = 30
BATCHES = (1, 2, 4, 8, 16)
BEAMS = (2, 5, 10)
STEPS = 40
ROUNDS = 5
END = 2


def main() -> None:
    """Print a table of medians in milliseconds."""
    arguments = _arguments()
    torch.set_num_threads(1)
    network = _network(arguments)
    strategy = SearchStrategy(network.decoder, torch.device("cpu"))
    states = _states(arguments.states, network.config.encoder.d_model)
    prefix = tuple(range(5, 5 + PREFILL_TOKENS - 1))
    layer = network.config.policy_defaults.attention_layer
    # The end is forbidden, so that no search is over before it has been measured.
    opening = Opening((END,), prefix, layer, forbid_end=True)
    # A copy is new to the strategy: it computes keys and values of the states anew.
    prefill_ms = _median_ms(lambda: strategy.begin(replace(states), opening), 4 * ROUNDS)
    print(f"{network.config.name}, {arguments.states} states, {arguments.precision}, one thread")
    print(f"prefill of {PREFILL_TOKENS} tokens   {prefill_ms:8.2f} ms")
    alone_ms = 0.0
    for batch in BATCHES:
        step_ms = _step_ms(strategy, states, opening, batch)
        alone_ms = alone_ms or step_ms
        print(f"step of a batch of {batch:2d}  {step_ms:8.2f} ms, {step_ms / batch:6.2f} a session")
    for size in BEAMS:
        plan = BeamPlan(size, max_new_tokens=2 * STEPS)
        beam = Opening((END, *prefix), (), layer, forbid_end=True, beam=plan)
        step_ms = _step_ms(strategy, states, beam, 1)
        ratio = step_ms / alone_ms
        print(f"step of a beam of {size:2d}   {step_ms:8.2f} ms, {ratio:6.2f} greedy steps")


def _step_ms(strategy: SearchStrategy, states: StateBlock, opening: Opening, batch: int) -> float:
    rounds = []
    for _ in range(ROUNDS):
        runs = [strategy.begin(states, opening)[0] for _ in range(batch)]
        rounds.append(_median_ms(lambda runs=runs: strategy.step(runs), STEPS))
    return statistics.median(rounds)


def _median_ms(compute: Callable[[], object], count: int) -> float:
    taken = []
    for _ in range(count):
        started = time.process_time()
        compute()
        taken.append((time.process_time() - started) * 1000)
    return statistics.median(taken)


def _network(arguments: argparse.Namespace) -> SpeechTranslationModel:
    if arguments.model is not None:
        return load_checkpoint(arguments.model, precision=arguments.precision).network
    torch.manual_seed(0)
    network = SpeechTranslationModel(PRESETS[arguments.preset])
    network.prepare_inference(DTYPES[arguments.precision])
    return network


def _states(count: int, dimension: int) -> StateBlock:
    values = np.random.default_rng(0).normal(size=(count, dimension)).astype(np.float32)
    return StateBlock(StatesId(0, 1), count, dimension, ElementType.FLOAT32, values.tobytes())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="paper")
    parser.add_argument("--model", type=Path, help="a checkpoint instead of a preset")
    parser.add_argument("--states", type=int, default=100, help="encoder states, default 100")
    parser.add_argument("--precision", choices=tuple(DTYPES), default="fp32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
