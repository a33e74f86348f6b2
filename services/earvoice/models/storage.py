"""The directory format of our own checkpoints, which proves itself by SHA-256.

model.safetensors   the network's tensors, and normalisation.mean and .deviation
source.model        SentencePiece model of the transcript (CTC labels)
target.model        SentencePiece model of the translation
config.json         format version, model configuration, SHA-256 of each file above
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from earvoice.models.assembly import (
    CheckpointParts,
    build_network,
    check_finite,
    check_vocabularies,
    is_derived,
    language_tags,
)
from earvoice.models.config import ModelConfig, PolicyDefaults
from earvoice.models.errors import CheckpointError
from earvoice.models.footprint import check_memory, loading_bytes
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.precision import PrecisionTrial
from earvoice.models.translation import parameter_count
from earvoice.models.vocabulary import Vocabulary
from earvoice.runtime.memory import available_memory_bytes

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SOURCE_FILE = "source.model"
TARGET_FILE = "target.model"
HASHED_FILES = (WEIGHTS_FILE, SOURCE_FILE, TARGET_FILE)
STORAGE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def save_checkpoint(
    directory: Path,
    config: ModelConfig,
    state_dict: Mapping[str, torch.Tensor],
    *,
    normalisation: FeatureNormalisation,
    source_model: bytes,
    target_model: bytes,
    storage_dtype: torch.dtype = torch.float32,
) -> None:
    """Write a checkpoint directory; `config.json` comes last and makes it valid.

    Args:
        directory: created if missing; files of an earlier checkpoint are replaced.
        config: the model's configuration.
        state_dict: of a `SpeechTranslationModel` with this configuration.
        normalisation: feature statistics.
        source_model: SentencePiece model of the transcript.
        target_model: SentencePiece model of the translation.
        storage_dtype: of matrices; vectors stay float32. float32, bfloat16 or float16.

    Raises:
        CheckpointError: the tensors, vocabularies and configuration contradict each other, or
            `storage_dtype` cannot hold a number.
    """
    if storage_dtype not in STORAGE_DTYPES:
        message = f"storage_dtype is {storage_dtype}; allowed: {STORAGE_DTYPES}"
        raise CheckpointError(message)
    check_vocabularies(
        config, Vocabulary(source_model), Vocabulary(target_model, language_tags(config))
    )
    build_network(config, state_dict)
    tensors = {
        name: _stored(tensor, storage_dtype)
        for name, tensor in state_dict.items()
        if not is_derived(name, config)
    }
    for name, tensor in tensors.items():
        check_finite(name, tensor)
    tensors["normalisation.mean"] = normalisation.mean.float().contiguous()
    tensors["normalisation.deviation"] = normalisation.deviation.float().contiguous()
    contents = {
        WEIGHTS_FILE: save_tensors(tensors),
        SOURCE_FILE: source_model,
        TARGET_FILE: target_model,
    }
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG_FILE).unlink(missing_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    (directory / CONFIG_FILE).write_text(_description(config, hashes), encoding="utf-8")


def read_directory(directory: Path) -> CheckpointParts:
    """Read and verify every file of a checkpoint directory.

    Raises:
        CheckpointError: a file is missing, damaged or contradicts its SHA-256.
        ModelTooLargeError: it needs more memory than there is.
        ModelConfigError: the configuration has unknown, missing or impossible fields.
        VocabularyError: a vocabulary is not usable.
    """
    config, hashes, trials = _read_description(directory)
    needed = loading_bytes(_file_bytes(directory, WEIGHTS_FILE), parameter_count(config))
    check_memory(config.name, needed, available_memory_bytes())
    weights = _read_verified(directory, WEIGHTS_FILE, hashes)
    try:
        tensors = load_tensors(weights)
        mean = tensors.pop("normalisation.mean").float()
        deviation = tensors.pop("normalisation.deviation").float()
    except (safetensors.SafetensorError, KeyError) as error:
        message = f"checkpoint {directory.name}: {WEIGHTS_FILE} is not usable ({error})"
        raise CheckpointError(message) from error
    target = Vocabulary(_read_verified(directory, TARGET_FILE, hashes), language_tags(config))
    return CheckpointParts(
        config=config,
        tensors=tensors,
        normalisation=FeatureNormalisation(mean, deviation),
        source_vocabulary=Vocabulary(_read_verified(directory, SOURCE_FILE, hashes)),
        target_vocabulary=target,
        # The configuration holds the hash of every other file, so its own covers all.
        hash=hashlib.sha256(_read_file(directory, CONFIG_FILE)).hexdigest(),
        precision_trials=trials,
    )


def load_config(directory: Path | str) -> ModelConfig:
    """The configuration of a checkpoint directory, without weights or vocabularies.

    Raises:
        CheckpointError: `config.json` is missing or damaged.
        ModelConfigError: it has unknown, missing or impossible fields.
    """
    return _read_description(Path(directory))[0]


def write_policy_defaults(directory: Path, defaults: PolicyDefaults) -> None:
    """Replace a checkpoint's calibrated policy parameters; its hash becomes another.

    Raises:
        CheckpointError: `config.json` is missing or damaged.
        ModelConfigError: they do not fit the model.
    """
    config, hashes, trials = _read_description(directory)
    config = dataclasses.replace(config, policy_defaults=defaults)
    _replace_description(directory, _description(config, hashes, trials))


def add_precision_trials(directory: Path, trials: tuple[PrecisionTrial, ...]) -> None:
    """Note how a checkpoint did in number formats; its hash becomes another.

    Args:
        directory: of the checkpoint.
        trials: each takes the place of an earlier one in the same format and language.

    Raises:
        CheckpointError: `config.json` is missing or damaged.
    """
    config, hashes, before = _read_description(directory)
    kept = {(trial.precision, trial.target_language): trial for trial in (*before, *trials)}
    _replace_description(directory, _description(config, hashes, tuple(kept.values())))


def read_target_vocabulary(directory: Path) -> Vocabulary:
    """The target vocabulary of a checkpoint directory, without its network.

    Raises:
        CheckpointError: a file is missing or damaged.
        VocabularyError: the vocabulary is not usable.
    """
    config, hashes, _ = _read_description(directory)
    content = _read_verified(directory, TARGET_FILE, hashes)
    return Vocabulary(content, language_tags(config))


def _replace_description(directory: Path, description: str) -> None:
    part = directory / f"{CONFIG_FILE}.part"
    part.write_text(description, encoding="utf-8")
    part.replace(directory / CONFIG_FILE)


def _description(
    config: ModelConfig, hashes: Mapping[str, Any], trials: tuple[PrecisionTrial, ...] = ()
) -> str:
    """What `config.json` holds."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "model": config.to_dict(),
        "sha256": dict(hashes),
    }
    if trials:
        description["precision_trials"] = [trial.to_dict() for trial in trials]
    return json.dumps(description, indent=2, ensure_ascii=False) + "\n"


def _read_description(
    directory: Path,
) -> tuple[ModelConfig, Mapping[str, Any], tuple[PrecisionTrial, ...]]:
    try:
        description = json.loads(_read_file(directory, CONFIG_FILE))
        version, model = description["format_version"], description["model"]
        hashes = description["sha256"]
        trials = [*description.get("precision_trials", ())]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"checkpoint {directory.name}: {CONFIG_FILE} is damaged ({error!r})"
        raise CheckpointError(message) from error
    if version != FORMAT_VERSION:
        message = f"{CONFIG_FILE} format_version is {version!r}; allowed: {FORMAT_VERSION}"
        raise CheckpointError(message)
    if not isinstance(hashes, dict) or sorted(hashes) != sorted(HASHED_FILES):
        message = f"{CONFIG_FILE} sha256 is {hashes!r}; allowed: one for each of {HASHED_FILES}"
        raise CheckpointError(message)
    trial_records = tuple(PrecisionTrial.from_dict(trial) for trial in trials)
    return ModelConfig.from_dict(model), hashes, trial_records


def _read_verified(directory: Path, name: str, hashes: Mapping[str, Any]) -> bytes:
    content = _read_file(directory, name)
    found = hashlib.sha256(content).hexdigest()
    if found != hashes[name]:
        message = f"checkpoint {directory.name}: {name} has SHA-256 {found}, not {hashes[name]}"
        raise CheckpointError(message)
    return content


def _file_bytes(directory: Path, name: str) -> int:
    try:
        return (directory / name).stat().st_size
    except OSError as error:
        message = f"checkpoint {directory}: {name}: {error.strerror}"
        raise CheckpointError(message) from error


def _read_file(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        message = f"checkpoint {directory}: {name}: {error.strerror}"
        raise CheckpointError(message) from error


def _stored(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    kept = tensor.detach().cpu().float()
    return (kept.to(dtype) if kept.ndim > 1 else kept).clone().contiguous()
