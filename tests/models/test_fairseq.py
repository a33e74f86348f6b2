"""Checkpoints in the papers' format: read without trust, and understood."""

import argparse
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint, load_target_vocabulary
from earvoice.models.config import ModelConfig
from earvoice.models.errors import CheckpointError, UnsafePickleError
from earvoice.models.loaders.pickled import read_checkpoint_archive
from earvoice.models.vocabulary import SPECIALS, Vocabulary
from tests.models.tiny_model import random_network

pytestmark = pytest.mark.torch

CONFIGURATION = """
bpe_tokenizer: {bpe: sentencepiece, sentencepiece_model: /elsewhere/tgt.model}
bpe_tokenizer_src: {bpe: sentencepiece, sentencepiece_model: src.model}
global_cmvn: {stats_npz_path: gcmvn.npz}
transforms: {'*': [global_cmvn]}
vocab_filename: tgt.txt
vocab_filename_src: src.txt
"""


def _options(config: ModelConfig) -> argparse.Namespace:
    return argparse.Namespace(
        encoder_embed_dim=config.encoder.d_model,
        encoder_attention_heads=config.encoder.heads,
        encoder_layers=config.encoder.layers,
        ctc_encoder_layer=config.encoder.ctc_layer,
        ctc_compress_strategy=config.encoder.compression,
        conformer_conv_kernel_size=config.encoder.depthwise_kernel,
        conv_kernel_sizes="5,5,5",
        conv_channels=config.encoder.subsampler.channels,
        decoder_layers=config.decoder.layers,
        decoder_attention_heads=config.decoder.heads,
        decoder_ffn_embed_dim=config.decoder.ffn_width,
        share_decoder_input_output_embed=config.decoder.tied_embeddings,
        no_scale_embedding=False,
    )


def _their_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    theirs = {"decoder.version": torch.zeros(1)}
    for name, tensor in state.items():
        renamed = name.replace(".attention.", ".attention.attention.")
        renamed = renamed.replace("encoder.layers.", "encoder.conformer_layers.")
        renamed = renamed.replace(".attention_norm.", ".attention.layer_norm.")
        pointwise = "_pointwise_conv1d.weight" in name
        theirs[renamed] = tensor[..., None] if pointwise else tensor
    return theirs


def _write_vocabulary(folder: Path, name: str, model: bytes, extra: tuple[str, ...] = ()) -> None:
    (folder / f"{name}.model").write_bytes(model)
    pieces = (*Vocabulary(model).pieces[len(SPECIALS) :], *extra)
    (folder / f"{name}.txt").write_text("".join(f"{piece} 1\n" for piece in pieces))


@pytest.fixture
def checkpoint(
    tmp_path: Path, released_config: ModelConfig, source_model: bytes, target_model: bytes
) -> Path:
    """A random network, written as the papers' code writes its older checkpoints."""
    content = {
        "args": _options(released_config),
        "model": _their_names(random_network(released_config).state_dict()),
        "extra_state": {"epoch": 1},
    }
    torch.save(content, tmp_path / "checkpoint.pt")
    _write_vocabulary(tmp_path, "src", source_model)
    _write_vocabulary(tmp_path, "tgt", target_model)
    np.savez(tmp_path / "gcmvn.npz", mean=np.full(80, 9.0), std=np.full(80, 3.0))
    (tmp_path / "config_simul.yaml").write_text(CONFIGURATION)
    return tmp_path / "checkpoint.pt"


def test_reads_what_the_papers_wrote(checkpoint: Path, released_config: ModelConfig) -> None:
    """Options, tensors, statistics and vocabularies make the network that was saved."""
    loaded = load_checkpoint(checkpoint, source_language="en", target_language="de")
    assert loaded.config.encoder == released_config.encoder
    assert loaded.config.decoder == released_config.decoder
    assert [language.code for language in loaded.config.target_languages] == ["de"]
    assert float(loaded.normalisation.deviation[0]) == 3.0
    assert load_target_vocabulary(checkpoint).pieces == loaded.target_vocabulary.pieces
    features = torch.randn(77, 80)
    torch.testing.assert_close(
        loaded.network.encoder.encode(features).states,
        random_network(released_config).encoder.encode(features).states,
        atol=2e-5,
        rtol=0,
    )


def test_hash_covers_every_file(checkpoint: Path) -> None:
    """Other statistics beside the same weights are another model."""
    first = load_checkpoint(checkpoint).hash
    np.savez(checkpoint.parent / "gcmvn.npz", mean=np.full(80, 8.0), std=np.full(80, 3.0))
    assert load_checkpoint(checkpoint).hash != first


def test_language_tags_come_from_the_dictionary(checkpoint: Path, target_model: bytes) -> None:
    """Dictionary entries behind the SentencePiece ids are silent pieces, tags among them."""
    _write_vocabulary(checkpoint.parent, "tgt", target_model, ("<lang:de>", "<lang:es>"))
    vocabulary = load_target_vocabulary(checkpoint)
    assert vocabulary.is_silent(vocabulary.id_of("<lang:es>"))
    with pytest.raises(CheckpointError, match="target_pieces is"):
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
    options = _options(released_config)
    options.no_scale_embedding = True
    torch.save({"args": options, "model": {}}, checkpoint)
    with pytest.raises(CheckpointError, match="no_scale_embedding is True; allowed: False"):
        load_checkpoint(checkpoint)


class _Hostile:
    """Runs a command when it is unpickled freely."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"open({str(self.trace)!r}, 'w')",)


def _archive(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint/data.pkl", content)
    return path


def test_hostile_pickle_is_refused(tmp_path: Path) -> None:
    """A pickle that would run code is refused by name, and nothing has run."""
    trace = tmp_path / "trace"
    path = _archive(tmp_path / "hostile.pt", pickle.dumps({"model": _Hostile(trace)}))
    with pytest.raises(UnsafePickleError, match=r"asks for builtins\.eval"):
        read_checkpoint_archive(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    ["os\nsystem", "torch\nload", "torch._utils\n__builtins__", "argparse\nArgumentParser"],
)
def test_only_known_names_are_resolved(tmp_path: Path, name: str) -> None:
    """Neighbours of allowed names are refused like any other."""
    path = _archive(tmp_path / "named.pt", f"c{name}\n.".encode())
    with pytest.raises(UnsafePickleError, match="Nothing was executed"):
        read_checkpoint_archive(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([1]), pickle.dumps({"a": 1})[:-3]],
    ids=["empty", "garbage", "a list", "cut off"],
)
def test_damaged_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever breaks inside, the error is ours."""
    with pytest.raises(CheckpointError):
        read_checkpoint_archive(_archive(tmp_path / "damaged.pt", content))


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no zip archive, or is missing, is an error of ours."""
    (tmp_path / "text.pt").write_text("no archive")
    for name in ("text.pt", "missing.pt"):
        with pytest.raises(CheckpointError, match="not a readable zip archive"):
            read_checkpoint_archive(tmp_path / name)


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    """An archive that could unpack to more than its own size is not read."""
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("checkpoint/data.pkl", bytes(2**20))
    with pytest.raises(CheckpointError, match="allowed: stored entries"):
        read_checkpoint_archive(tmp_path / "bomb.pt")


def test_tensors_cannot_reach_outside_their_storage(tmp_path: Path) -> None:
    """A tensor that claims more than its storage holds is refused."""
    path = tmp_path / "tensor.pt"
    torch.save({"model": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            short = data[:8] if name.endswith("data/0") else data
            archive.writestr(name, short)
    with pytest.raises(CheckpointError, match="storage 0 has 8 bytes"):
        read_checkpoint_archive(path)
