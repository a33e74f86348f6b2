"""`earvoice verify model`: a checkpoint beside what was computed of it, and every way to differ."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.cli.command import CommandError
from earvoice.evaluation.verification.command import COMMAND
from earvoice.evaluation.verification.model import forward
from earvoice.evaluation.verification.tensors import largest_difference
from tests.tiny_model import (
    SOURCE_TEXT,
    TARGET_TEXT,
    random_network,
    save_network,
    tiny_config,
    train_sentencepiece,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint, features, and what our own network makes of them."""
    folder = tmp_path_factory.mktemp("verified")
    source, target = train_sentencepiece(SOURCE_TEXT), train_sentencepiece(TARGET_TEXT)
    config = tiny_config(source, target)
    network = random_network(config)
    save_network(folder / "model", network, source, target)
    torch.manual_seed(1)
    features = {"a": torch.randn(90, 80).numpy(), "b": torch.randn(170, 80).numpy()}
    np.savez(folder / "feats.npz", **features)
    together = forward(network, list(features.values()), watched=True)
    arrays = {f"avg/batch2/{name}": value for name, value in together.items()}
    for name, frames in features.items():
        tokens = [2, 5, 7, 9]
        searched = forward(network, [frames], tokens, watched=True)
        again = forward(network, [frames], searched["greedy_tokens"].tolist(), watched=True)
        arrays |= {f"avg/{name}/{key}": value for key, value in again.items()}
    np.savez(folder / "forward.npz", **arrays)
    return folder


def verify(*words: str) -> int:
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args(["model", *words]))


def _changed(folder: Path, tmp_path: Path, key: str, change: float) -> Path:
    with np.load(folder / "forward.npz") as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    arrays[key].reshape(-1)[0] += np.asarray(change).astype(arrays[key].dtype)
    np.savez(tmp_path / "forward.npz", **arrays)
    return tmp_path / "forward.npz"


def test_equal_tensors_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tensor is listed with its largest difference, layer by layer and as served."""
    assert verify(str(folder / "model"), str(folder / "forward.npz")) == 0
    told = capsys.readouterr().out
    names = ("subsample_TBC", "enc_layer2_TBC", "encoder_out_TBC", "ctc_groups_b1")
    for name in (*names, "cross_attn_heads_layer1", "tf_logits", "greedy_tokens"):
        assert name in told
    assert "PAST" not in told
    assert "tensors are within their tolerance" in told


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("avg/a/encoder_out_TBC", 4e-5),
        ("avg/b/enc_layer1_TBC", 4e-5),
        ("avg/a/cross_attn_mean_layer0", 4e-5),
        ("avg/a/tf_logits", 2e-4),
        ("avg/b/greedy_tokens", 1),
        ("avg/a/ctc_groups_b0", 1),
        ("avg/batch2/encoder_out_TBC", np.nan),
    ],
)
def test_a_difference_is_told_and_fails(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, change: float
) -> None:
    """Past the tolerance by little is past it: the tensor and its utterance are named."""
    forward = _changed(folder, tmp_path, key, change)
    features = str(folder / "feats.npz")
    assert verify(str(folder / "model"), str(forward), "--features", features) == 1
    _, utterance, name = key.split("/")
    lines = [line for line in capsys.readouterr().out.splitlines() if "PAST" in line]
    assert any(line.startswith(name) and f"avg/{utterance}" in line for line in lines)


def test_within_the_tolerance_passes(folder: Path, tmp_path: Path) -> None:
    """A rounding is no difference."""
    forward = _changed(folder, tmp_path, "avg/a/encoder_out_TBC", 5e-6)
    assert verify(str(folder / "model"), str(forward), "--features", str(folder / "feats.npz")) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--strategy", "softmax"), "has no 'softmax'; allowed: avg"),
        (("--features", "nowhere.npz"), "no such file"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, words: tuple[str, str], message: str) -> None:
    """A compression or features that are missing."""
    with pytest.raises(CommandError, match=message):
        verify(str(folder / "model"), str(folder / "forward.npz"), *words)


def test_unknown_tensors_are_not_passed_over(folder: Path, tmp_path: Path) -> None:
    """A name that nobody computes is an error: it must not count as equal."""
    with np.load(folder / "forward.npz") as stored:
        arrays = {**{name: stored[name] for name in stored.files}, "avg/a/other": np.zeros(3)}
    np.savez(tmp_path / "forward.npz", **arrays)
    with pytest.raises(CommandError, match="avg/a, layer by layer: other"):
        features = str(folder / "feats.npz")
        verify(str(folder / "model"), str(tmp_path / "forward.npz"), "--features", features)


def test_differences_count_what_is_compared() -> None:
    """Other shapes and NaN are infinitely far; what the reference forbids is not compared."""
    assert largest_difference(np.zeros(3), np.zeros(4)) == np.inf
    assert largest_difference(np.array([np.nan]), np.zeros(1)) == np.inf
    assert largest_difference(np.array([1.0, 2.0]), np.array([-np.inf, 2.5])) == 0.5
    assert largest_difference(np.array([9.0, 2.0]), np.zeros(2), np.array([False, True])) == 2.0


@pytest.mark.parametrize("model", ["small_random", "t1"])
def test_the_papers_checkpoints_pass(
    model: str, shared_golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every shared tensor, the features of real sound included."""
    reference = str(shared_golden / f"{model}_forward.npz")
    status = verify(str(shared_golden / "models" / model), reference)
    told = capsys.readouterr().out
    assert status == 0, told
    assert "features_raw" in told


def test_files_of_another_kind_are_named(folder: Path, tmp_path: Path) -> None:
    """A file that holds no arrays is an error of ours."""
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(CommandError, match=r"not an \.npz file of arrays"):
        verify(
            str(folder / "model"),
            str(tmp_path / "text.npz"),
            "--features",
            str(folder / "feats.npz"),
        )
