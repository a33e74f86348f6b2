"""Reading the checkpoints of the papers' code (FBK-fairseq): one `.pt` and the files beside it."""

import math
import reprlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml

from earvoice.models.assembly import CheckpointParts, check_memory, loading_bytes
from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.loaders.pickled import StoredTensor, open_archive, unwrapped
from earvoice.models.vocabulary import SPECIALS, Vocabulary
from earvoice.runtime.files import digest_of
from earvoice.runtime.machine import available_memory_bytes

MAX_STATISTICS_BYTES = 2**20
"""Two rows of 80 numbers take a thousandth of it; a compressed file may claim to be any size."""


class DataSettings:
    """The data configuration beside a checkpoint, and the files it names."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint.parent
        candidates = sorted(self._folder.glob("config*.yaml"))
        preferred = [path for path in candidates if path.name == "config_simul.yaml"] or candidates
        if len(preferred) != 1:
            raise CheckpointError(
                f"beside {checkpoint.name} stand {[path.name for path in candidates]}; "
                "allowed: one config*.yaml, or config_simul.yaml among them"
            )
        self._path = preferred[0]
        try:
            self._values = yaml.safe_load(self._path.read_text(encoding="utf-8"))
        except Exception as error:
            # YAML breaks in many ways: an invalid date, for one, is a ValueError.
            message = f"{self._path.name} is not readable YAML ({type(error).__name__}: {error})"
            raise CheckpointError(message) from error
        if not isinstance(self._values, dict):
            message = f"{self._path.name} holds {type(self._values).__name__}; allowed: a mapping"
            raise CheckpointError(message)
        self._used = {self._path}

    def vocabulary(self, tokenizer_field: str, dictionary_field: str) -> Vocabulary:
        """A SentencePiece model that must agree, id by id, with the dictionary."""
        pieces = self._dictionary(dictionary_field)
        model = self._file(tokenizer_field, "sentencepiece_model").read_bytes()
        own = Vocabulary(model).pieces
        if pieces[: len(own)] != own:
            differing = next(
                (i for i, pair in enumerate(zip(own, pieces, strict=False)) if pair[0] != pair[1]),
                len(pieces),
            )
            raise CheckpointError(
                f"{self._path.name} {dictionary_field}: id {differing} differs from the "
                "SentencePiece model; allowed: equal ids"
            )
        return Vocabulary(model, pieces[len(own) :])

    def normalisation(self) -> FeatureNormalisation:
        """The global statistics, the only feature transform that is supported."""
        transforms = self._values.get("transforms") or {}
        if isinstance(transforms, dict):
            # As in the papers' code, transforms for evaluation take precedence.
            chosen = transforms.get("_eval")
            transforms = (transforms.get("*") if chosen is None else chosen) or []
        if transforms == []:
            return FeatureNormalisation.identity()
        if transforms != ["global_cmvn"]:
            told = reprlib.repr(transforms)
            message = f"{self._path.name} transforms are {told}; allowed: ['global_cmvn']"
            raise CheckpointError(message)
        return FeatureNormalisation(*_statistics(self._file("global_cmvn", "stats_npz_path")))

    def digest(self, checkpoint: Path) -> str:
        """Digest of the checkpoint and every file read for it."""
        return digest_of({*self._used, checkpoint})

    def _dictionary(self, field: str) -> tuple[str, ...]:
        """The dictionary's symbols: one `symbol count` per line, after the four specials."""
        path = self._file(field)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path.name} is not UTF-8 ({error})") from error
        # Not splitlines(): it ends lines at characters that a symbol may have.
        return (*SPECIALS, *(line.rsplit(" ", 1)[0] for line in text.split("\n") if line))

    def _file(self, *fields: str) -> Path:
        name: Any = self._values
        for field in fields:
            name = name.get(field) if isinstance(name, dict) else None
        # Only the name counts: training left absolute paths of another machine.
        path = self._folder / Path(name).name if isinstance(name, str) else None
        if path is None or not path.is_file():
            told = f"{self._path.name} {'.'.join(fields)} is {reprlib.repr(name)}"
            raise CheckpointError(f"{told}; allowed: a file beside it")
        self._used.add(path)
        return path


def _statistics(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        _check_size(path)
        with np.load(path, allow_pickle=False) as statistics:
            # Refuses complex numbers, which would lose a part, and strings.
            mean, deviation = (
                statistics[name].astype(np.float32, casting="same_kind") for name in ("mean", "std")
            )
    except CheckpointError:
        raise
    except Exception as error:
        # A damaged file raises almost any built-in exception, depending on where it breaks.
        told = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path.name} does not hold mean and std ({told})") from error
    return torch.from_numpy(mean), torch.from_numpy(deviation)


def _check_size(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size_bytes = sum(item.file_size for item in archive.infolist())
    if size_bytes > MAX_STATISTICS_BYTES:
        message = f"{path.name} unpacks to {size_bytes} bytes; allowed: {MAX_STATISTICS_BYTES}"
        raise CheckpointError(message)


IGNORED_SUFFIXES = (".pe", "decoder.version", "_float_tensor", ".num_batches_tracked")
"""Entries of the state dictionary that carry no weights of ours."""

RENAMED = (
    ("encoder.conformer_layers.", "encoder.layers."),
    ("encoder.transformer_layers.", "encoder.layers."),
    (".attention.layer_norm.", ".attention_norm."),
    (".attention.attention.", ".attention."),
)
"""Parts of tensor names, theirs and ours, applied in this order."""

REQUIRED_OPTIONS: Mapping[str, Any] = {
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
    "decoder_learned_pos": False,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "conformer_half_step_residual": True,
    "conv_expansion_factor": 2,
    "ctc_compress_fixed_ratio": 4,
    "ctc_compress_max_out_size": -1,
    "activation_fn": "relu",
    "distance_penalty": False,
    "layernorm_embedding": False,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "input_feat_per_channel": 80,
    "input_channels": 1,
}
"""Options whose other values mean a network that this package does not compute."""

LANGUAGE_TAG_PREFIX = "<lang:"


def read_fairseq(path: Path, source_language: str, target_language: str) -> CheckpointParts:
    """Read a `.pt` checkpoint with its `config*.yaml`, dictionaries and statistics.

    Args:
        path: the `.pt` file; the configuration is the only `config*.yaml` beside it, or
            `config_simul.yaml` if there are several.
        target_language: BCP-47 tag; used unless the dictionary has language tags.
    """
    with open_archive(path) as content:
        options = _model_options(content, path.name)
        tensors = _tensors(content, path.name)
    settings = DataSettings(path)
    source = settings.vocabulary("bpe_tokenizer_src", "vocab_filename_src")
    target = settings.vocabulary("bpe_tokenizer", "vocab_filename")
    languages = _target_languages(target, target_language)
    return CheckpointParts(
        config=_config(path, options, tensors, source_language, languages),
        tensors=tensors,
        normalisation=settings.normalisation(),
        source_vocabulary=source,
        target_vocabulary=target,
        hash=settings.digest(path),
    )


def shifts_by_batch(path: Path) -> bool:
    """Whether the papers' code shifted positions by the length of the batch, not the utterance.

    Only in training and in padded batches: a single utterance gets the same either way.
    """
    with open_archive(path) as content:
        return bool(_model_options(content, path.name).get("batch_unsafe_relative_shift", False))


def _model_options(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The flat options of `cfg.model`, or of the older `args`."""
    groups = unwrapped(content.get("cfg"))
    model = groups.get("model") if isinstance(groups, dict) else None
    options = unwrapped(model or content.get("args"))
    if not isinstance(options, SimpleNamespace):
        message = f"checkpoint {name} has no cfg.model with options; allowed: a namespace"
        raise CheckpointError(message)
    values = {option: _scalar(value) for option, value in vars(options).items()}
    for option, required in REQUIRED_OPTIONS.items():
        if values.get(option, required) != required:
            message = f"checkpoint {name} {option} is {values[option]!r}; allowed: {required!r}"
            raise CheckpointError(message)
    return values


def _scalar(value: Any) -> Any:
    """A scalar as it is; of anything else its type, since its text could be endless."""
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    return value if whole or isinstance(value, str | float | None) else type(value)


def _tensors(content: Mapping[str, Any], name: str) -> dict[str, torch.Tensor]:
    """The state dictionary in our names; pointwise convolutions become matrices."""
    state = content.get("model")
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, StoredTensor) for key, value in state.items()
    ):
        message = f"checkpoint {name} has no model; allowed: a dictionary of tensors by name"
        raise CheckpointError(message)
    wanted = {key: value for key, value in state.items() if not key.endswith(IGNORED_SUFFIXES)}
    storages = {stored.storage for stored in wanted.values()}
    needed = loading_bytes(
        sum(storage.elements * storage.dtype.itemsize for storage in storages),
        sum(math.prod(stored.size) for stored in wanted.values()),
    )
    check_memory(name, needed, available_memory_bytes())
    tensors = {}
    for theirs, stored in wanted.items():
        tensor = stored.read()
        ours = theirs
        for old, new in RENAMED:
            ours = ours.replace(old, new)
        tensors[ours] = tensor.squeeze(-1) if "_pointwise_conv1d.weight" in ours else tensor
    return tensors


def _target_languages(target: Vocabulary, otherwise: str) -> tuple[TargetLanguage, ...]:
    tags = [piece for piece in target.pieces if piece.startswith(LANGUAGE_TAG_PREFIX)]
    if not tags:
        return (TargetLanguage(otherwise),)
    return tuple(TargetLanguage(tag[len(LANGUAGE_TAG_PREFIX) : -1], tag) for tag in tags)


def _config(
    path: Path,
    options: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    source_language: str,
    target_languages: tuple[TargetLanguage, ...],
) -> ModelConfig:
    try:
        layers = options["decoder_layers"]
        return ModelConfig(
            name=path.resolve().parent.name,
            version="1",
            source_language=source_language,
            target_languages=target_languages,
            source_pieces=tensors["encoder.ctc_fc.weight"].shape[0] - 1,
            target_pieces=tensors["decoder.embed_tokens.weight"].shape[0],
            encoder=_encoder_config(options, tensors),
            decoder=DecoderConfig(
                layers=layers,
                heads=options["decoder_attention_heads"],
                ffn_width=options["decoder_ffn_embed_dim"],
                tied_embeddings=bool(options.get("share_decoder_input_output_embed", False)),
            ),
            # The papers read layer 4 of 6; in a decoder of another depth, the same relative height.
            policy_defaults=PolicyDefaults(attention_layer=max(1, round(layers * 2 / 3))),
        )
    except KeyError as error:
        raise CheckpointError(
            f"checkpoint {path.name} lacks {error}; a Conformer or Transformer with a CTC head is "
            "expected"
        ) from error
    except (IndexError, TypeError, ValueError, ArithmeticError) as error:
        message = f"checkpoint {path.name}: its options or shapes describe no network ({error})"
        raise CheckpointError(message) from error


def _encoder_config(
    options: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> EncoderConfig:
    kernels = [int(kernel) for kernel in str(options["conv_kernel_sizes"]).split(",")]
    if len(set(kernels)) != 1:
        raise CheckpointError(f"conv_kernel_sizes is {kernels}; allowed: equal sizes")
    width = options["encoder_embed_dim"]
    shared: dict[str, Any] = {
        "d_model": width,
        "heads": options["encoder_attention_heads"],
        "layers": options["encoder_layers"],
        "ctc_layer": options["ctc_encoder_layer"],
        "compression": options.get("ctc_compress_strategy", "none"),
        "subsampler": SubsamplerConfig(len(kernels), kernels[0], options["conv_channels"]),
    }
    plain = tensors.get("encoder.layers.0.fc1.weight")
    if plain is not None:
        return EncoderConfig(
            architecture="transformer", ffn_multiplier=plain.shape[0] // width, **shared
        )
    # The released Conformer layer ignores encoder_ffn_embed_dim: its shape is what counts.
    first_linear = tensors["encoder.layers.0.first_feed_forward.first_linear.weight"]
    return EncoderConfig(
        ffn_multiplier=first_linear.shape[0] // width,
        depthwise_kernel=options["conformer_conv_kernel_size"],
        positions="released",
        **shared,
    )
