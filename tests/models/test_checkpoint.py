"""Checkpoint directories: what is saved is what is loaded, and damage is noticed."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from earvoice.models.assembly import check_memory, loading_bytes
from earvoice.models.checkpoint import (
    Half,
    add_precision_trials,
    load_checkpoint,
    load_config,
    save_checkpoint,
)
from earvoice.models.config import ModelConfig
from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.inference import check_inference_dtype
from earvoice.models.precision import PrecisionTrial, has_fast_bfloat16
from earvoice.models.translation import tied_parameter_count
from tests.tiny_model import random_network, save_network

pytestmark = pytest.mark.torch

Change = Callable[[dict[str, torch.Tensor]], object]

SCALES = "decoder.embed_tokens.scales"
NORMALISATION = FeatureNormalisation(torch.linspace(8, 12, 80), torch.linspace(2, 3, 80))


@pytest.fixture
def directory(
    tmp_path: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> Path:
    models = (source_model, target_model)
    save_network(tmp_path / "tiny", random_network(config), *models, normalisation=NORMALISATION)
    return tmp_path / "tiny"


@pytest.mark.parametrize("read", [load_config, load_checkpoint])
def test_another_familys_folder_is_told_as_such(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """A command that needs one of our networks says so, not that the folder is damaged."""
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    with pytest.raises(CheckpointError, match="is computed by transformers; allowed here"):
        read(tmp_path)


def test_round_trip(directory: Path, config: ModelConfig) -> None:
    """Configuration, statistics, vocabularies and every result come back."""
    checkpoint = load_checkpoint(directory)
    assert checkpoint.config == load_config(directory) == config
    assert checkpoint.config.name == "tiny"
    assert torch.equal(checkpoint.normalisation.mean, NORMALISATION.mean)
    assert len(checkpoint.source_vocabulary) == config.source_pieces
    features = torch.randn(80, 80)
    expected = random_network(config)
    encoded = checkpoint.network.encoder.encode(features)
    torch.testing.assert_close(
        encoded.states, expected.encoder.encode(features).states, atol=2e-5, rtol=0
    )
    cache = checkpoint.network.decoder.open_cache(encoded.states)
    logits, _ = checkpoint.network.decoder.prefill([2, 5], cache, 1)
    cache = expected.decoder.open_cache(encoded.states)
    torch.testing.assert_close(
        logits, expected.decoder.prefill([2, 5], cache, 1)[0], atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_size_storage(
    directory: Path,
    config: ModelConfig,
    source_model: bytes,
    target_model: bytes,
    dtype: torch.dtype,
) -> None:
    """Matrices in two bytes halve the file; the loaded network computes in float32."""
    full_bytes = (directory / "model.safetensors").stat().st_size
    save_network(
        directory,
        random_network(config),
        source_model,
        target_model,
        normalisation=NORMALISATION,
        storage_dtype=dtype,
    )
    assert (directory / "model.safetensors").stat().st_size < 0.65 * full_bytes
    states = load_checkpoint(directory).network.encoder.encode(torch.randn(50, 80)).states
    assert states.dtype == torch.float32


def test_a_matrix_in_one_byte(
    directory: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> None:
    """What comes back is as near as 8 bits are; bytes without their scales are refused."""
    state = random_network(config).state_dict()
    save_checkpoint(
        directory,
        config,
        state,
        normalisation=NORMALISATION,
        source_model=source_model,
        target_model=target_model,
        in_int8=["decoder.embed_tokens.weight"],
    )
    rows = state["decoder.embed_tokens.weight"]
    found = load_checkpoint(directory).network.decoder.embed_tokens.weight
    assert bool(((found - rows).abs() <= rows.abs().amax(1, keepdim=True) / 253).all())
    _rewrite(directory, lambda tensors: tensors.update({SCALES: torch.ones(3)}))
    with pytest.raises(CheckpointError, match=r"embed_tokens\.scales is \(3,\) torch\.float32"):
        load_checkpoint(directory)
    matrix = load_file(directory / "model.safetensors")["decoder.embed_tokens.weight"]
    rows = len(matrix)
    _rewrite(
        directory,
        lambda tensors: tensors.update(
            {"decoder.embed_tokens.weight": matrix[:, 0].clone(), SCALES: torch.ones(rows)}
        ),
    )
    with pytest.raises(CheckpointError, match=rf"beside \({rows},\) torch\.int8; allowed: "):
        load_checkpoint(directory)
    _rewrite(directory, lambda tensors: tensors.update({"decoder.embed_tokens.weight": matrix}))
    _rewrite(directory, lambda tensors: tensors.pop(SCALES))
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight is torch\.int8"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("stored", "gains"),
    [
        ("decoder.embed_tokens.weight", False),
        ("encoder.layers.0.conv_module.first_pointwise_conv1d.weight", False),
        ("decoder.layers.0.fc1.weight", True),
    ],
    ids=["embeddings", "encoder", "layers"],
)
def test_a_decoder_with_layers_in_8_bits_is_faster_in_bf16(
    directory: Path,
    config: ModelConfig,
    source_model: bytes,
    target_model: bytes,
    stored: str,
    gains: bool,
) -> None:
    """`auto` takes it on every processor, for the decoder alone, if the model passed its trials."""
    save_checkpoint(
        directory,
        config,
        random_network(config).state_dict(),
        normalisation=NORMALISATION,
        source_model=source_model,
        target_model=target_model,
        in_int8=[stored],
    )
    tags = [language.code for language in config.target_languages]
    unproven = load_checkpoint(directory, precision="auto", without="encoder")
    assert unproven.dtype == torch.float32
    trials = [PrecisionTrial("bf16", tag, 300, 0.99, 0.0, -0.3) for tag in tags]
    add_precision_trials(directory, tuple(trials))
    is_native = has_fast_bfloat16(torch.device("cpu"))
    decoder = load_checkpoint(directory, precision="auto", without="encoder")
    encoder = load_checkpoint(directory, precision="auto", without="decoder")
    assert (decoder.dtype == torch.bfloat16) == (gains or is_native)
    assert (encoder.dtype == torch.bfloat16) == is_native


def test_numbers_too_large_for_the_storage_are_refused(
    directory: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> None:
    """What would be infinite in two bytes is told when saving, and the old files stay."""
    state = random_network(config).state_dict()
    state["encoder.ctc_fc.weight"][0, 0] = 1e6
    before = load_checkpoint(directory).hash
    with pytest.raises(CheckpointError, match=r"encoder\.ctc_fc\.weight holds NaN or infinity"):
        save_checkpoint(
            directory,
            config,
            state,
            normalisation=NORMALISATION,
            source_model=source_model,
            target_model=target_model,
            storage_dtype=torch.float16,
        )
    assert load_checkpoint(directory).hash == before


def test_hash_names_the_content(directory: Path) -> None:
    """The hash repeats, and changes with any field."""
    first = load_checkpoint(directory).hash
    assert load_checkpoint(directory).hash == first
    text = (directory / "config.json").read_text()
    (directory / "config.json").write_text(text.replace('"version": "1"', '"version": "2"'))
    assert load_checkpoint(directory).hash != first


@pytest.mark.parametrize("name", ["model.safetensors", "source.model", "target.model"])
def test_damage_is_noticed(directory: Path, name: str) -> None:
    """One changed byte in any file, or a missing file, is refused by name."""
    content = bytearray((directory / name).read_bytes())
    content[-1] ^= 1
    (directory / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} has SHA-256"):
        load_checkpoint(directory)
    (directory / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version is 2; allowed: 1"),
        ({"sha256": {}}, "sha256 is"),
        ({"model": None}, "model = None .*allowed: an object"),
    ],
)
def test_other_formats_are_refused(
    directory: Path, change: dict[str, object], message: str
) -> None:
    """A description of another format says what is allowed."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises((CheckpointError, ModelError), match=message):
        load_checkpoint(directory)


def test_missing_and_broken_descriptions_are_refused(tmp_path: Path) -> None:
    """No directory, or a configuration that is no JSON, is an error of ours."""
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_checkpoint(tmp_path / "nowhere")
    for broken in ("{", "[" * 100_000):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(tmp_path)


def test_contradictions_are_refused_when_saving(
    tmp_path: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> None:
    """Vocabularies and tensors must fit the configuration, before anything is written."""
    state = random_network(config).state_dict()
    larger = dataclasses.replace(config, source_pieces=config.source_pieces + 1)
    deeper = dataclasses.replace(config, decoder=dataclasses.replace(config.decoder, layers=3))
    for wrong, message in ((larger, "source_pieces is"), (deeper, "is missing")):
        with pytest.raises(CheckpointError, match=message):
            save_checkpoint(
                tmp_path / "wrong",
                wrong,
                state,
                normalisation=NORMALISATION,
                source_model=source_model,
                target_model=target_model,
            )
    assert not (tmp_path / "wrong").exists()


def _rewrite(directory: Path, change: Change) -> None:
    """Change the tensors and keep the hashes right: what is left is only wrong in itself."""
    weights = directory / "model.safetensors"
    tensors = load_file(weights)
    change(tensors)
    save_file(tensors, weights)
    description = json.loads((directory / "config.json").read_text())
    description["sha256"][weights.name] = hashlib.sha256(weights.read_bytes()).hexdigest()
    (directory / "config.json").write_text(json.dumps(description))


def _spoil(name: str, value: float) -> Change:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name].view(-1)[0] = value

    return change


def _drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["encoder.ctc_fc.bias"]


def _add(tensors: dict[str, torch.Tensor]) -> None:
    tensors["encoder.extra"] = torch.zeros(1)


def _reshape(tensors: dict[str, torch.Tensor]) -> None:
    tensors["encoder.ctc_fc.bias"] = tensors["encoder.ctc_fc.bias"][1:].clone()


def _convert(name: str, dtype: torch.dtype, factor: float = 1) -> Change:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = (factor * tensors[name].double()).to(dtype)

    return change


VARIANCE = "encoder.layers.0.conv_module.batchnorm.running_var"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_spoil("encoder.ctc_fc.bias", torch.nan), r"encoder\.ctc_fc\.bias holds NaN or inf"),
        (_spoil("decoder.embed_tokens.weight", torch.inf), r"embed_tokens\.weight holds NaN"),
        (_spoil("normalisation.mean", -torch.inf), "normalisation mean"),
        (_drop, r"encoder\.ctc_fc\.bias is missing"),
        (_add, r"encoder\.extra is not one of this network"),
        (_reshape, r"encoder\.ctc_fc\.bias is \(\d+,\); allowed"),
        (_convert("encoder.ctc_fc.bias", torch.int64), r"bias is torch\.int64; allowed: torch"),
        (_convert("encoder.ctc_fc.bias", torch.float8_e4m3fn), r"bias is torch\.float8_e4m3fn"),
        (_convert("encoder.ctc_fc.bias", torch.float64, 1e300), r"bias holds NaN or infinity"),
        (_spoil(VARIANCE, -0.5), r"batchnorm\.running_var is -0\.5; allowed: 0 and more"),
    ],
)
def test_wrong_tensors_are_refused(directory: Path, change: Change, message: str) -> None:
    """Numbers that are none, and tensors that do not fit, are refused by the tensor's name."""
    _rewrite(directory, change)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(directory)


def test_truncated_weights_are_refused(directory: Path) -> None:
    """Also where somebody made the hash fit."""
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    description = json.loads((directory / "config.json").read_text())
    description["sha256"][weights.name] = hashlib.sha256(weights.read_bytes()).hexdigest()
    (directory / "config.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not usable"):
        load_checkpoint(directory)


def test_a_model_that_does_not_fit_says_so(directory: Path, config: ModelConfig) -> None:
    """The configuration alone says how large a model is: both numbers are told, nothing is read."""
    width = {"d_model": 4096, "heads": 64, "layers": 96, "ctc_layer": 96, "ffn_multiplier": 16}
    path = directory / "config.json"
    description = json.loads(path.read_text())
    description["model"]["encoder"].update(width)
    description["sha256"]["model.safetensors"] = "not even looked at"
    path.write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=r"needs [\d,]+ MiB .*; available: [\d,]+ MiB"):
        load_checkpoint(directory)


@pytest.mark.parametrize(("available", "refused"), [(999, True), (1000, False), (None, False)])
def test_memory_is_compared(available: int | None, *, refused: bool) -> None:
    """A model may take all there is; where the system says nothing it is tried."""
    with pytest.raises(CheckpointError, match="model tiny needs") if refused else nullcontext():
        check_memory("tiny", 1000, available)


def test_tied_embeddings_take_more_memory_while_they_are_packed(config: ModelConfig) -> None:
    """They are packed for all pieces, and once more in another way."""
    tied, plain = (
        dataclasses.replace(
            config, decoder=dataclasses.replace(config.decoder, tied_embeddings=is_tied)
        )
        for is_tied in (True, False)
    )
    embeddings = config.target_pieces * config.encoder.d_model
    assert (tied_parameter_count(tied), tied_parameter_count(plain)) == (embeddings, 0)
    assert loading_bytes(100, 1000, 300) - loading_bytes(100, 1000) == 4 * 300
    assert loading_bytes(5200, 1000, 300) == loading_bytes(5200, 1000)


@pytest.mark.parametrize(("without", "left"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_a_half_that_is_not_needed_is_left_out(directory: Path, without: Half, left: str) -> None:
    """It takes neither time nor memory; what is told of the model does not change."""
    whole, half = load_checkpoint(directory), load_checkpoint(directory, without=without)
    assert not hasattr(half.network, without)
    assert half.describe("") == whole.describe("")
    expected, found = (getattr(each.network, left).state_dict() for each in (whole, half))
    torch.testing.assert_close(found, expected)


def test_other_dtypes_are_refused() -> None:
    """Linear layers infer in float32, bfloat16, float16 or int8."""
    with pytest.raises(ModelError, match=r"torch\.float64; allowed: torch\.float32"):
        check_inference_dtype(torch.float64)
