"""Loading checkpoints, whatever wrote them, as models that are ready to compute.

Our own are directories whose files are verified by SHA-256:

model.safetensors   the network's tensors, and normalisation.mean and .deviation
source.model        SentencePiece model of the transcript (CTC labels)
target.model        SentencePiece model of the translation
lexicon.tsv         translations of rare words, where the model has such a table
config.json         format version, model configuration, SHA-256 of each file above
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import safetensors
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from earvoice.api.v1 import types_pb2
from earvoice.models.assembly import (
    CheckpointParts,
    build_network,
    check_finite,
    check_memory,
    check_vocabularies,
    is_derived,
    language_tags,
    loading_bytes,
)
from earvoice.models.config import Compression, Confidence, ModelConfig, PolicyDefaults
from earvoice.models.errors import CheckpointError
from earvoice.models.families import EncoderFamily, family_of
from earvoice.models.frontend import FeatureNormalisation, FeatureStream, feature_stream
from earvoice.models.inference import quantised
from earvoice.models.lexicon import Lexicon, Table, read_table
from earvoice.models.loaders.fairseq import read_fairseq
from earvoice.models.precision import (
    ELEMENT_TYPES,
    Precision,
    PrecisionTrial,
    bears,
    chosen_dtype,
)
from earvoice.models.translation import (
    SpeechTranslationModel,
    parameter_count,
    tied_parameter_count,
)
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.wrapped.directory import is_wrapped
from earvoice.policies.message import write_policy
from earvoice.policies.registry import parse_policy
from earvoice.runtime.files import atomic_write
from earvoice.runtime.machine import available_memory_bytes

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SOURCE_FILE = "source.model"
TARGET_FILE = "target.model"
LEXICON_FILE = "lexicon.tsv"
HASHED_FILES = (WEIGHTS_FILE, SOURCE_FILE, TARGET_FILE)
"""`LEXICON_FILE` may be beside them."""
STORAGE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WEIGHT, SCALES = ".weight", ".scales"
"""Name suffixes of an 8-bit matrix, and of its rows' scales."""

Half = Literal["encoder", "decoder"]


def save_checkpoint(
    directory: Path,
    config: ModelConfig,
    state_dict: Mapping[str, torch.Tensor],
    *,
    normalisation: FeatureNormalisation,
    source_model: bytes,
    target_model: bytes,
    lexicon: bytes | None = None,
    storage_dtype: torch.dtype = torch.float32,
    in_int8: Collection[str] = (),
) -> None:
    """Write a checkpoint directory; `config.json` comes last and makes it valid.

    Args:
        directory: created if missing; files of an earlier checkpoint are replaced.
        lexicon: a table as `write_table` writes it, for a model that translates its own text.
        storage_dtype: of matrices; vectors stay float32. float32, bfloat16 or float16.
        in_int8: matrices to be kept in 8 bits, with a scale for each row.
    """
    if storage_dtype not in STORAGE_DTYPES:
        raise CheckpointError(f"storage_dtype is {storage_dtype}; allowed: {STORAGE_DTYPES}")
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
    for name in in_int8:
        tensors[name], scales = quantised(state_dict[name].detach().cpu().float())
        tensors[name.removesuffix(WEIGHT) + SCALES] = scales[:, 0].contiguous()
    tensors["normalisation.mean"] = normalisation.mean.float().contiguous()
    tensors["normalisation.deviation"] = normalisation.deviation.float().contiguous()
    contents = {
        WEIGHTS_FILE: save_tensors(tensors),
        SOURCE_FILE: source_model,
        TARGET_FILE: target_model,
    }
    if lexicon is not None:
        contents[LEXICON_FILE] = lexicon
        _table_of(lexicon, config)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    directory.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG_FILE, LEXICON_FILE):
        (directory / name).unlink(missing_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    _write_description(directory, config, hashes)


def read_directory(directory: Path) -> CheckpointParts:
    """Read and verify every file of a checkpoint directory."""
    config, hashes, trials = _read_description(directory)
    file_bytes, tied = _file_bytes(directory, WEIGHTS_FILE), tied_parameter_count(config)
    needed = loading_bytes(file_bytes, parameter_count(config), tied)
    check_memory(config.name, needed, available_memory_bytes())
    weights = _read_verified(directory, WEIGHTS_FILE, hashes)
    try:
        tensors = load_tensors(weights)
        mean = tensors.pop("normalisation.mean").float()
        deviation = tensors.pop("normalisation.deviation").float()
        scaled = [name for name in tensors if name.endswith(SCALES)]
        for name in scaled:
            weight = name.removesuffix(SCALES) + WEIGHT
            tensors[weight] = _scaled(tensors[weight], name, tensors.pop(name))
    except (safetensors.SafetensorError, KeyError) as error:
        message = f"checkpoint {directory.name}: {WEIGHTS_FILE} is not usable ({error})"
        raise CheckpointError(message) from error
    target = Vocabulary(_read_verified(directory, TARGET_FILE, hashes), language_tags(config))
    lexicon = None
    if LEXICON_FILE in hashes:
        lexicon = _read_verified(directory, LEXICON_FILE, hashes)
    return CheckpointParts(
        config=config,
        tensors=tensors,
        normalisation=FeatureNormalisation(mean, deviation),
        source_vocabulary=Vocabulary(_read_verified(directory, SOURCE_FILE, hashes)),
        target_vocabulary=target,
        lexicon=lexicon,
        hash=directory_hash(directory),
        precision_trials=trials,
        has_decoder_layers_in_8_bits=any(
            name.startswith("decoder.") and ".layers." in name for name in scaled
        ),
    )


def _table_of(lexicon: bytes, config: ModelConfig) -> Table:
    table = read_table(lexicon)
    languages = [language.code for language in config.target_languages if language.tag]
    other = sorted(table.keys() - languages)
    if other or not config.decoder.pivot_layers:
        allowed = f"some of {languages}, in a model with pivot_layers"
        raise CheckpointError(f"{LEXICON_FILE} has languages {sorted(table)}; allowed: {allowed}")
    return table


def _scaled(rows: torch.Tensor, name: str, scales: torch.Tensor) -> torch.Tensor:
    """[n, m] numbers in 8 bits times their rows' scales, [n]; `name` is that of the scales."""
    is_matrix = rows.ndim == 2 and scales.shape == rows.shape[:1]  # noqa: PLR2004 - two axes
    if rows.dtype != torch.int8 or scales.dtype != torch.float32 or not is_matrix:
        raise CheckpointError(
            f"tensor {name} is {tuple(scales.shape)} {scales.dtype} beside "
            f"{tuple(rows.shape)} {rows.dtype}; allowed: a torch.float32 for each row of torch.int8"
        )
    return rows.float() * scales[:, None]


def load_config(directory: Path | str) -> ModelConfig:
    """The configuration of a checkpoint directory, without weights or vocabularies."""
    return _read_description(Path(directory))[0]


def write_calibration(directory: Path, calibrated: PolicyDefaults | Confidence) -> None:
    """Replace a checkpoint's policy parameters or its confidence; its hash changes."""
    config, hashes, trials = _read_description(directory)
    if isinstance(calibrated, Confidence):
        config = dataclasses.replace(config, confidence=calibrated)
    else:
        config = dataclasses.replace(config, policy_defaults=calibrated)
    _write_description(directory, config, hashes, trials)


def directory_hash(directory: Path) -> str:
    """The SHA-256 that identifies a directory: its configuration's, which lists the others."""
    return hashlib.sha256(_read_file(directory, CONFIG_FILE)).hexdigest()


def add_precision_trials(directory: Path, trials: tuple[PrecisionTrial, ...]) -> None:
    """Record how a checkpoint did in number formats; its hash changes.

    Args:
        trials: each replaces an earlier one in the same format and language.
    """
    config, hashes, before = _read_description(directory)
    kept = {(trial.precision, trial.target_language): trial for trial in (*before, *trials)}
    _write_description(directory, config, hashes, tuple(kept.values()))


def _write_description(
    directory: Path,
    config: ModelConfig,
    hashes: Mapping[str, Any],
    trials: tuple[PrecisionTrial, ...] = (),
) -> None:
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "model": config.to_dict(),
        "sha256": dict(hashes),
    }
    if trials:
        description["precision_trials"] = [trial.to_dict() for trial in trials]
    with atomic_write(directory / CONFIG_FILE) as partial:
        text = json.dumps(description, indent=2, ensure_ascii=False)
        partial.write_text(f"{text}\n", encoding="utf-8")


def _read_description(
    directory: Path,
) -> tuple[ModelConfig, Mapping[str, Any], tuple[PrecisionTrial, ...]]:
    if is_wrapped(directory):
        message = f"{directory.name} is computed by transformers; allowed here: networks of our own"
        raise CheckpointError(message)
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
    if not isinstance(hashes, dict) or {*hashes} - {LEXICON_FILE} != {*HASHED_FILES}:
        allowed = f"one for each of {HASHED_FILES}, and for {LEXICON_FILE} if there is one"
        message = f"{CONFIG_FILE} sha256 is {hashes!r}; allowed: {allowed}"
        raise CheckpointError(message)
    trial_records = tuple(
        PrecisionTrial.from_dict(trial, f"precision_trials[{index}].")
        for index, trial in enumerate(trials)
    )
    return ModelConfig.from_dict(model, "model."), hashes, trial_records


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
        raise CheckpointError(f"checkpoint {directory}: {name}: {error.strerror}") from error


def _read_file(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        raise CheckpointError(f"checkpoint {directory}: {name}: {error.strerror}") from error


def _stored(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    kept = tensor.detach().cpu().float()
    return (kept.to(dtype) if kept.ndim > 1 else kept).clone().contiguous()


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

    def describe(self, name: str) -> types_pb2.ModelDescription:
        config, defaults = self.config, self.config.policy_defaults
        confidence = config.confidence
        return types_pb2.ModelDescription(
            name=name or config.name,
            hash=self.hash,
            version=config.version,
            source_language_code=config.source_language,
            target_language_codes=sorted(language.code for language in config.target_languages),
            decoder_layer_count=config.decoder.layers,
            decoder_head_count=config.decoder.heads,
            precision=ELEMENT_TYPES[self.dtype],
            parameter_count=parameter_count(config),
            default_policy=defaults.policy,
            default_alpha=defaults.alpha,
            default_lambda_states=defaults.lambda_states,
            default_attention_layer=defaults.attention_layer,
            default_frames=defaults.frames,
            default_segment_ms=defaults.segment_ms,
            default_attention_heads=defaults.attention_heads,
            confidence_map=types_pb2.ConfidenceMap(
                unsure_scale=confidence.unsure_scale,
                sure_scale=confidence.sure_scale,
                offset=confidence.offset,
            ),
            default_min_confidence=confidence.least,
            greedy_only=config.decoder.architecture == "lstm",
            reads_words=self.family.reads_words,
            translates_text=bool(config.decoder.pivot_layers),
            longest_utterance_ms=config.encoder.longest_utterance_ms,
            default_policies={
                language.code: write_policy(parse_policy(language.policy))
                for language in config.target_languages
                if language.policy
            },
        )

    def open_features(self) -> FeatureStream:
        return feature_stream(self.family.open_analysis(), self.normalisation)

    @property
    def family(self) -> EncoderFamily:
        return family_of(self.config.encoder.architecture)


def load_checkpoint(
    path: Path | str,
    *,
    precision: Precision | Literal["auto"] = "fp32",
    device: torch.device | str = "cpu",
    source_language: str = "und",
    target_language: str = "und",
    compression: Compression | None = None,
    without: Half | None = None,
) -> Checkpoint:
    """Load a checkpoint directory, or a `.pt` file of the papers' code.

    Args:
        precision: number format of the matrix products; everything else computes in float32.
            `auto` is explained at `chosen_dtype`.
        device: where the network computes; its packed weights cannot be moved later.
        compression: replaces the checkpoint's own.
        without: half of the network that is not needed; the network then lacks it.
    """
    parts = read_parts(path, source_language, target_language)
    if compression is not None:
        parts = _with_compression(parts, compression)
    check_vocabularies(parts.config, parts.source_vocabulary, parts.target_vocabulary)
    languages = [language.code for language in parts.config.target_languages]
    bears_bfloat16 = bears("bf16", parts.precision_trials, languages)
    dtype = chosen_dtype(
        precision,
        torch.device(device),
        bears_bfloat16=bears_bfloat16,
        in_8_bits=without == "encoder" and parts.has_decoder_layers_in_8_bits,
    )
    checkpoint = Checkpoint(
        config=parts.config,
        network=build_network(parts.config, parts.tensors).to(device),
        normalisation=parts.normalisation,
        source_vocabulary=parts.source_vocabulary,
        target_vocabulary=parts.target_vocabulary,
        hash=parts.hash,
        dtype=dtype,
    )
    if parts.lexicon is not None and without != "decoder":
        # Tens of thousands of lines: read only where translations are written.
        table, vocabulary = _table_of(parts.lexicon, parts.config), parts.target_vocabulary
        tokens = {
            language.code: vocabulary.id_of(language.tag)
            for language in parts.config.target_languages
            if language.code in table
        }
        decoder = checkpoint.network.transformer_decoder
        decoder.lexicon = Lexicon(table, vocabulary, tokens, device)
    # Packed weights replace those that were read, so nothing else may keep these alive.
    del parts
    if without is not None:
        delattr(checkpoint.network, without)
    checkpoint.network.prepare_inference(dtype)
    return checkpoint


def read_parts(
    path: Path | str, source_language: str = "und", target_language: str = "und"
) -> CheckpointParts:
    """Read a checkpoint without building it; the languages apply only to a `.pt` file."""
    path = Path(path)
    if path.suffix == ".pt":
        return read_fairseq(path, source_language, target_language)
    return read_directory(path)


def _with_compression(parts: CheckpointParts, compression: Compression) -> CheckpointParts:
    """The same weights as a different model: its states differ, so its hash must."""
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
