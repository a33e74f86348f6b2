"""Two processes train one network."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from earvoice.training.normalisation import measure_normalisation
from earvoice.training.peers import NoPeers, ProcessGroup, find_peers
from earvoice.training.recipe import TrainingRecipe
from earvoice.training.run_state import RunFolder
from tests.deploy.tool import free_port
from tests.lab.test_trainer import BUDGET, STEPS, make_trainer
from tests.lab.tiny_corpus import write_corpus

pytestmark = pytest.mark.torch


def train_one(rank: int, port: int, corpus: Path, out: Path) -> None:
    """What `torchrun` does for one process; ends with its weights in `out`."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    peers = find_peers()
    assert isinstance(peers, ProcessGroup)
    trainer = make_trainer(corpus, out / "run", budget=BUDGET, peers=peers)
    trainer.run()
    assert trainer.state.step == STEPS
    weights = {name: p.detach() for name, p in trainer.network.named_parameters()}
    torch.save(weights, out / f"{rank}.pt")
    share_a_part(peers)
    assert group_threads()
    peers.leave()
    for _ in range(200):
        # The kernel lists a thread for a moment more than it can be waited for.
        if not group_threads():
            return
        time.sleep(0.1)
    pytest.fail(f"{group_threads()} would outlive Python, and abort the process")


def share_a_part(peers: ProcessGroup) -> None:
    """A gradient that one process has is halved; one that nobody has stays none."""
    shared, untouched = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    if peers.rank == 1:
        shared.grad = torch.ones(2)
    peers.average_gradients([shared, untouched])
    assert shared.grad is not None
    assert shared.grad.tolist() == [0.5, 0.5]
    assert untouched.grad is None


def group_threads() -> list[str]:
    """The names of this process's threads that share values with others."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        # It may have ended since it was listed.
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text().strip())
    return [name for name in names if "gloo" in name]


def test_two_processes_end_with_the_same_weights(tmp_path: Path) -> None:
    """They hear different batches, share their gradients, and the first one alone writes."""
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    corpus.mkdir()
    out.mkdir()
    write_corpus(corpus)
    measure_normalisation(corpus, TrainingRecipe()).write(corpus)
    multiprocessing.spawn(train_one, args=(free_port(), corpus, out), nprocs=2)
    first, second = (torch.load(out / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    make_trainer(corpus, out / "alone").run()
    alone = RunFolder(out / "alone").load()
    saved = RunFolder(out / "run").load()
    assert alone is not None
    assert saved is not None
    name = "decoder.layers.0.fc1.weight"
    assert torch.equal(saved["network"][name], first[name])
    assert not torch.equal(saved["network"][name], alone["network"][name])


def test_a_process_without_peers_is_alone() -> None:
    """Outside `torchrun` nothing is shared."""
    peers = find_peers({})
    assert isinstance(peers, NoPeers)
    assert peers.largest([3.0]) == peers.mean([3.0]) == [3.0]
