"""`earvoice model`: what a checkpoint is, and the papers' format as our own."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import pytest
import torch

from earvoice.cli.command import CommandError
from earvoice.evaluation.checkpoint import COMMAND
from earvoice.models.checkpoint import load_checkpoint, read_directory
from earvoice.models.lexicon import write_table
from tests.models.papers_checkpoint import write_papers_checkpoint
from tests.models.test_lexicon import TABLE, save_with_lexicon
from tests.tiny_model import (
    SOURCE_TEXT,
    TARGET_TEXT,
    random_network,
    save_network,
    tiny_config,
    train_sentencepiece,
    write_tiny_checkpoint,
)

pytestmark = pytest.mark.torch


@pytest.fixture
def models() -> tuple[bytes, bytes]:
    """SentencePiece models of transcript and translation."""
    return train_sentencepiece(SOURCE_TEXT), train_sentencepiece(TARGET_TEXT)


@pytest.fixture
def checkpoint(tmp_path: Path, models: tuple[bytes, bytes]) -> Path:
    """A random network in the papers' format."""
    config = tiny_config(*models)
    encoder = dataclasses.replace(config.encoder, positions="released")
    config = dataclasses.replace(config, encoder=encoder)
    return write_papers_checkpoint(tmp_path, config, *models)


def model(*words: str | Path) -> int:
    """Run the command and give its exit status."""
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_convert_keeps_the_model(checkpoint: Path, tmp_path: Path, precision: str) -> None:
    """The papers' file and the directory made of it compute the same, but for what bf16 rounds."""
    target = tmp_path / "converted"
    words = ("--from", "en", "--to", "de", "--name", "mine", "--precision", precision)
    assert model("convert", checkpoint, target, *words) == 0
    loaded = load_checkpoint(target)
    assert loaded.config.name == "mine"
    assert loaded.config.source_language == "en"
    assert [language.code for language in loaded.config.target_languages] == ["de"]
    features = torch.randn(60, 80)
    original = load_checkpoint(checkpoint)
    assert loaded.target_vocabulary.pieces == original.target_vocabulary.pieces
    assert torch.equal(loaded.normalisation.mean, original.normalisation.mean)
    if precision == "fp32":
        states = loaded.network.encoder.encode(features).states
        assert torch.equal(states, original.network.encoder.encode(features).states)


@pytest.mark.parametrize(("flag", "tag"), [("--from", "english"), ("--to", "de de")])
def test_what_is_no_language_tag_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, tag: str
) -> None:
    """The model would be served with it, and no client could ask for it."""
    with pytest.raises(SystemExit):
        model("convert", tmp_path / "from.pt", tmp_path / "to", flag, tag)
    assert f"{flag}: {tag!r} is not allowed; allowed: a BCP-47 tag" in capsys.readouterr().err


def test_convert_keeps_the_lexicon(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "without", translating=True)
    save_with_lexicon(tmp_path / "given", tmp_path / "without", write_table(TABLE))
    assert model("convert", tmp_path / "given", tmp_path / "made") == 0
    assert read_directory(tmp_path / "made").lexicon == write_table(TABLE)


def test_convert_replaces_nothing(checkpoint: Path, tmp_path: Path) -> None:
    """A folder that holds something stays as it is."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    with pytest.raises(CommandError, match="is there already"):
        model("convert", checkpoint, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]


def test_info_tells_the_format_of_most_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], models: tuple[bytes, bytes]
) -> None:
    """Also where they are stored in 8 bits, which are floats once they are read."""
    network = random_network(tiny_config(*models))
    state = network.state_dict()
    matrices = [name for name, value in state.items() if value.ndim == 2 and "weight" in name]
    save_network(tmp_path / "tiny", network, *models, in_int8=matrices)
    assert model("info", tmp_path / "tiny", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["stored as"] == "int8"


def test_info_tells_what_one_must_know(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    models: tuple[bytes, bytes],
) -> None:
    """Parameters, languages, number format, sizes, memory, hash and the policies' defaults."""
    config = tiny_config(*models)
    network = random_network(config)
    save_network(tmp_path / "tiny", network, *models, storage_dtype=torch.bfloat16)
    assert model("info", tmp_path / "tiny", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert told["parameters"] == parameters
    assert told["weights in fp32, bytes"] == 4 * parameters
    assert told["memory to load it, bytes"] > 8 * parameters
    assert told["stored as"] == "bfloat16"
    assert told["languages"] == ["en -> de"]
    assert told["hash"] == load_checkpoint(tmp_path / "tiny").hash
    files = sum(path.stat().st_size for path in (tmp_path / "tiny").iterdir())
    assert told["size on disk, bytes"] == files
    assert told["default attention_layer"] == 1
    assert model("info", tmp_path / "tiny") == 0
    assert f"{parameters:,}" in capsys.readouterr().out


def test_info_finds_damage(checkpoint: Path) -> None:
    """A checkpoint that would not load is not described."""
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(CommandError, match="damaged"):
        model("info", checkpoint.parent)
    with pytest.raises(CommandError, match="no such file"):
        model("info", checkpoint.parent / "nowhere")
