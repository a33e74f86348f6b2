"""Checkpoints in the papers' format: read without trust, and understood."""

import dataclasses
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint, read_parts
from earvoice.models.config import ModelConfig
from earvoice.models.errors import CheckpointError
from tests.models.papers_checkpoint import (
    papers_names,
    papers_options,
    papers_transformer_names,
    write_papers_checkpoint,
    write_vocabulary,
)
from tests.tiny_model import random_network

pytestmark = pytest.mark.torch


@pytest.fixture
def checkpoint(
    tmp_path: Path, released_config: ModelConfig, source_model: bytes, target_model: bytes
) -> Path:
    return write_papers_checkpoint(tmp_path, released_config, source_model, target_model)


def test_reads_what_the_papers_wrote(checkpoint: Path, released_config: ModelConfig) -> None:
    """Options, tensors, statistics and vocabularies make the network that was saved."""
    loaded = load_checkpoint(checkpoint, source_language="en", target_language="de")
    assert loaded.config.encoder == released_config.encoder
    assert loaded.config.decoder == released_config.decoder
    assert [language.code for language in loaded.config.target_languages] == ["de"]
    assert float(loaded.normalisation.deviation[0]) == 3.0
    features = torch.randn(77, 80)
    torch.testing.assert_close(
        loaded.network.encoder.encode(features).states,
        random_network(released_config).encoder.encode(features).states,
        atol=2e-5,
        rtol=0,
    )


def test_reads_transformer_encoders(checkpoint: Path, config: ModelConfig) -> None:
    """The plain Transformer of Papi 2022 is known by its tensors, whatever the options say."""
    encoder = dataclasses.replace(config.encoder, architecture="transformer", ffn_multiplier=2)
    config = dataclasses.replace(config, encoder=encoder)
    state = random_network(config).state_dict()
    torch.save(
        {"args": papers_options(config), "model": papers_transformer_names(state)}, checkpoint
    )
    loaded = load_checkpoint(checkpoint, source_language="en", target_language="de")
    assert loaded.config.encoder.architecture == "transformer"
    assert loaded.config.encoder.ffn_multiplier == 2
    features = torch.randn(77, 80)
    torch.testing.assert_close(
        loaded.network.encoder.encode(features).states,
        random_network(config).encoder.encode(features).states,
        atol=2e-5,
        rtol=0,
    )


def test_reads_averaged_checkpoints(checkpoint: Path, released_config: ModelConfig) -> None:
    """An average in half precision that kept the last optimizer state loads without that state."""
    state = papers_names(random_network(released_config).state_dict())
    content = {
        "args": papers_options(released_config),
        "cfg": None,
        "model": OrderedDict((name, tensor.half()) for name, tensor in state.items()),
        "optimizer_history": [{"num_updates": 7, "criterion_name": "CTCMultiLoss"}],
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.randn(1000)}}},
        "extra_state": {"epoch": 3, "val_loss": 1.5},
    }
    torch.save(content, checkpoint)
    states = load_checkpoint(checkpoint).network.encoder.encode(torch.randn(50, 80)).states
    assert states.dtype == torch.float32
    with zipfile.ZipFile(checkpoint) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    optimizer = max((n for n in entries if "/data/" in n), key=lambda n: int(n.split("/")[-1]))
    with zipfile.ZipFile(checkpoint, "w") as archive:
        for name in entries.keys() - {optimizer}:
            archive.writestr(name, entries[name])
    load_checkpoint(checkpoint)


def test_hash_covers_every_file(checkpoint: Path) -> None:
    """Other statistics beside the same weights are another model."""
    first = load_checkpoint(checkpoint).hash
    np.savez(checkpoint.parent / "gcmvn.npz", mean=np.full(80, 8.0), std=np.full(80, 3.0))
    assert load_checkpoint(checkpoint).hash != first


def test_language_tags_come_from_the_dictionary(checkpoint: Path, target_model: bytes) -> None:
    """Dictionary entries behind the SentencePiece ids are silent pieces, tags among them."""
    write_vocabulary(checkpoint.parent, "tgt", target_model, ("<lang:de>", "<lang:es>"))
    vocabulary = read_parts(checkpoint).target_vocabulary
    assert vocabulary.is_silent(vocabulary.id_of("<lang:es>"))
    with pytest.raises(CheckpointError, match="target_pieces is"):
        load_checkpoint(checkpoint)


def test_a_network_with_tags_speaks_each_language(
    checkpoint: Path, released_config: ModelConfig, target_model: bytes
) -> None:
    """One network, a language for each tag; the tag is what is forced first."""
    write_vocabulary(checkpoint.parent, "tgt", target_model, ("<lang:de>", "<lang:es>"))
    config = dataclasses.replace(released_config, target_pieces=released_config.target_pieces + 2)
    state = papers_names(random_network(config).state_dict())
    torch.save({"args": papers_options(config), "model": state}, checkpoint)
    loaded = load_checkpoint(checkpoint, source_language="en")
    languages = {language.code: language.tag for language in loaded.config.target_languages}
    assert languages == {"de": "<lang:de>", "es": "<lang:es>"}
    assert loaded.target_vocabulary.id_of("<lang:es>") == config.target_pieces - 1


def test_numbers_that_are_none_are_refused(checkpoint: Path, released_config: ModelConfig) -> None:
    """A diverged training is refused with the tensor's name."""
    state = papers_names(random_network(released_config).state_dict())
    state["encoder.ctc_fc.bias"][3] = torch.nan
    torch.save({"args": papers_options(released_config), "model": state}, checkpoint)
    with pytest.raises(CheckpointError, match=r"tensor encoder\.ctc_fc\.bias holds NaN"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_truncated_files_are_refused(checkpoint: Path, kept: float) -> None:
    """A download that broke off is refused by name, wherever it did."""
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt"):
        load_checkpoint(checkpoint)


def test_a_flipped_byte_is_refused(checkpoint: Path) -> None:
    """The archive's own check sums are looked at: the entry that is wrong is named."""
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"data/\d+ is damaged .*CRC"):
        load_checkpoint(checkpoint)


def _remove_statistics(folder: Path) -> None:
    (folder / "gcmvn.npz").unlink()


def _other_transform(folder: Path) -> None:
    path = folder / "config_simul.yaml"
    path.write_text(path.read_text().replace("[global_cmvn]", "[utterance_cmvn]"))


def _other_dictionary(folder: Path) -> None:
    path = folder / "tgt.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


def _second_configuration(folder: Path) -> None:
    (folder / "config_simul.yaml").rename(folder / "config_a.yaml")
    (folder / "config_b.yaml").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_remove_statistics, "stats_npz_path is 'gcmvn.npz'; allowed: a file beside it"),
        (_other_transform, r"transforms are \['utterance_cmvn'\]; allowed"),
        (_other_dictionary, "id 4 differs from the SentencePiece model"),
        (_second_configuration, "allowed: one config"),
    ],
)
def test_files_beside_it_must_fit(
    checkpoint: Path, spoil: Callable[[Path], None], message: str
) -> None:
    """A missing or contradicting file is refused with its name."""
    spoil(checkpoint.parent)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(checkpoint)


def test_other_networks_are_refused(checkpoint: Path, released_config: ModelConfig) -> None:
    """An option that means another network is named, with what is allowed."""
    options = papers_options(released_config)
    options.no_scale_embedding = True
    torch.save({"args": options, "model": {}}, checkpoint)
    with pytest.raises(CheckpointError, match="no_scale_embedding is True; allowed: False"):
        load_checkpoint(checkpoint)
