"""Checkpoints, whatever wrote them, as models that are ready to compute."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Literal

import torch

from earvoice.models.assembly import CheckpointParts, build_network, check_vocabularies
from earvoice.models.config import Compression, ModelConfig
from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation, FeatureStream, Filterbank
from earvoice.models.loaders.fairseq import read_fairseq, read_fairseq_target_vocabulary
from earvoice.models.precision import Precision, bears, chosen_dtype
from earvoice.models.storage import (
    add_precision_trials,
    load_config,
    read_directory,
    read_target_vocabulary,
    save_checkpoint,
    write_policy_defaults,
)
from earvoice.models.translation import SpeechTranslationModel, parameter_count
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.wrapped.directory import is_wrapped
from earvoice.runtime.model_facts import ModelFacts

__all__ = [
    "Checkpoint",
    "add_precision_trials",
    "load_checkpoint",
    "load_config",
    "load_target_vocabulary",
    "read_parts",
    "save_checkpoint",
    "write_policy_defaults",
]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model that is ready to compute."""

    config: ModelConfig
    network: SpeechTranslationModel
    """In evaluation mode, on the device asked for."""
    normalisation: FeatureNormalisation
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    hash: str
    """SHA-256 in hexadecimal over the content of every file."""
    dtype: torch.dtype
    """Of the matrix products."""

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        return self.config.name

    def facts(self, name: str) -> ModelFacts:
        """What a service tells about this model.

        Args:
            name: to serve it by; empty takes its own.
        """
        config, defaults = self.config, self.config.policy_defaults
        return ModelFacts(
            name=name or config.name,
            hash=self.hash,
            version=config.version,
            source_language=config.source_language,
            target_languages=tuple(sorted(language.code for language in config.target_languages)),
            decoder_layers=config.decoder.layers,
            parameter_count=parameter_count(config),
            computes_in_bfloat16=self.dtype == torch.bfloat16,
            computes_in_int8=self.dtype == torch.int8,
            default_policy=defaults.policy,
            default_alpha=defaults.alpha,
            default_lambda_states=defaults.lambda_states,
            default_attention_layer=defaults.attention_layer,
            default_frames=defaults.frames,
            default_segment_ms=defaults.segment_ms,
            default_attention_heads=defaults.attention_heads,
        )

    def open_features(self) -> FeatureStream:
        """A fresh feature stream for one utterance."""
        return FeatureStream(Filterbank(), self.normalisation)


def load_checkpoint(
    path: Path | str,
    *,
    precision: Precision | Literal["auto"] = "fp32",
    device: torch.device | str = "cpu",
    source_language: str = "und",
    target_language: str = "und",
    compression: Compression | None = None,
) -> Checkpoint:
    """Load a checkpoint directory, or a `.pt` file of the papers' code.

    Args:
        path: the directory, or the `.pt` file with its vocabularies beside it.
        precision: number format of the matrix products; everything else computes in float32.
            `auto` takes bf16 where it is fast and the model passed its trial, else fp32.
        device: where the network computes; its packed weights cannot be moved later.
        source_language: what a `.pt` file translates from; a directory says so itself.
        target_language: what a `.pt` file translates to; a directory says so itself.
        compression: in place of the checkpoint's own.

    Raises:
        CheckpointError: a file is missing, damaged, hostile, or contradicts another.
        DeviceError: the device does not compute in this number format.
        ModelConfigError: the configuration has unknown, missing or impossible fields.
        VocabularyError: a vocabulary is not usable.
    """
    parts = read_parts(path, source_language, target_language)
    if compression is not None:
        parts = _with_compression(parts, compression)
    check_vocabularies(parts.config, parts.source_vocabulary, parts.target_vocabulary)
    languages = [language.code for language in parts.config.target_languages]
    bears_bfloat16 = bears("bf16", parts.precision_trials, languages)
    dtype = chosen_dtype(precision, torch.device(device), bears_bfloat16=bears_bfloat16)
    checkpoint = Checkpoint(
        config=parts.config,
        network=build_network(parts.config, parts.tensors).to(device),
        normalisation=parts.normalisation,
        source_vocabulary=parts.source_vocabulary,
        target_vocabulary=parts.target_vocabulary,
        hash=parts.hash,
        dtype=dtype,
    )
    # Packed weights take the place of those that were read, which nothing may hold any more.
    del parts
    checkpoint.network.prepare_inference(dtype)
    return checkpoint


def read_parts(
    path: Path | str, source_language: str = "und", target_language: str = "und"
) -> CheckpointParts:
    """Read a checkpoint directory, or a `.pt` file of the papers' code, without building it.

    Args:
        path: the directory, or the `.pt` file with its vocabularies beside it.
        source_language: what a `.pt` file translates from; a directory says so itself.
        target_language: what a `.pt` file translates to; a directory says so itself.

    Raises:
        CheckpointError: a file is missing, damaged or hostile, or memory too small.
        ModelConfigError: the configuration has unknown, missing or impossible fields.
        VocabularyError: a vocabulary is not usable.
    """
    path = Path(path)
    if path.suffix == ".pt":
        return read_fairseq(path, source_language, target_language)
    if is_wrapped(path):
        message = f"{path.name} is computed by transformers; allowed here: networks of our own"
        raise CheckpointError(message)
    return read_directory(path)


def _with_compression(parts: CheckpointParts, compression: Compression) -> CheckpointParts:
    """The same weights as another model: its states differ, so its hash does."""
    encoder = parts.config.encoder
    if encoder.compression == compression:
        return parts
    return dataclasses.replace(
        parts,
        config=dataclasses.replace(
            parts.config, encoder=dataclasses.replace(encoder, compression=compression)
        ),
        hash=hashlib.sha256(f"{parts.hash} {compression}".encode()).hexdigest(),
        precision_trials=(),
    )


def load_target_vocabulary(path: Path | str) -> Vocabulary:
    """The target vocabulary of a checkpoint directory or `.pt` file, without the network.

    Raises:
        CheckpointError: a file is missing or damaged.
        VocabularyError: the vocabulary is not usable.
    """
    path = Path(path)
    if path.suffix == ".pt":
        return read_fairseq_target_vocabulary(path)
    return read_target_vocabulary(path)
