"""Building a network from a configuration and tensors, which must match and fit in memory."""

import dataclasses
from collections.abc import Mapping

import torch

from earvoice.models.config import ModelConfig
from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.precision import PrecisionTrial
from earvoice.models.translation import SpeechTranslationModel, network_without_storage
from earvoice.models.vocabulary import Vocabulary

FLOAT32_BYTES = 4
WORKING_BYTES = 128 * 2**20
"""Memory for loading and the first computations besides the weights; 90 MiB were measured."""


def loading_bytes(file_bytes: int, parameters: int, tied: int = 0) -> int:
    """Peak memory while a model is loaded.

    The float32 weights are held first together with the file they are read from, then with their
    copies packed for computing. The `tied` ones of them, which are embeddings and output projection
    at once, are packed a second time in 8 bits or for the pieces on a shortlist.
    """
    weights = FLOAT32_BYTES * parameters
    return weights + max(file_bytes, weights + FLOAT32_BYTES * tied) + WORKING_BYTES


def check_memory(name: str, needed_bytes: int, available_bytes: int | None) -> None:
    """Refuse a model that would not fit, before anything is read."""
    if available_bytes is not None and needed_bytes > available_bytes:
        raise CheckpointError(
            f"model {name} needs {_mebibytes(needed_bytes)} to be loaded; "
            f"available: {_mebibytes(available_bytes)}"
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


EMBEDDING_WEIGHT = "decoder.embed_tokens.weight"
OUTPUT_WEIGHT = "decoder.output_projection.weight"

STORED_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Number formats that convert to float32 exactly, or nearly so."""


@dataclasses.dataclass(frozen=True)
class CheckpointParts:
    """The contents of a checkpoint of any format, before the network is built."""

    config: ModelConfig
    tensors: Mapping[str, torch.Tensor]
    """The network's state dictionary, with the names of `SpeechTranslationModel`."""
    normalisation: FeatureNormalisation
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    hash: str
    lexicon: bytes | None = None
    """A table as `write_table` writes it."""
    precision_trials: tuple[PrecisionTrial, ...] = ()
    has_decoder_layers_in_8_bits: bool = False
    """Whether weights of layers were stored in 8 bits, not only embeddings."""


def language_tags(config: ModelConfig) -> tuple[str, ...]:
    return tuple(language.tag for language in config.target_languages if language.tag)


def build_network(
    config: ModelConfig, tensors: Mapping[str, torch.Tensor]
) -> SpeechTranslationModel:
    """A network in evaluation mode with these tensors, converted to float32."""
    network = network_without_storage(config)
    expected = network.state_dict()
    stored = {n: t for n, t in tensors.items() if not is_derived(n, config)}
    # Shapes first: a hostile tensor may claim a size that only its conversion would allocate.
    _check_tensors({n: t for n, t in expected.items() if not is_derived(n, config)}, stored)
    given = {name: tensor.float().contiguous() for name, tensor in stored.items()}
    for name in expected:
        if name not in given:
            tied = name == OUTPUT_WEIGHT
            given[name] = given[EMBEDDING_WEIGHT] if tied else torch.tensor(0)
    network.load_state_dict(given, assign=True)
    network.decoder.tie_embeddings()
    return network.eval()


def _check_tensors(expected: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
    for problem, names in (
        ("is missing", sorted(set(expected) - set(given))),
        ("is not one of this network's tensors", sorted(set(given) - set(expected))),
    ):
        if names:
            raise CheckpointError(f"tensor {names[0]} {problem} ({len(names)} such tensors)")
    for name, tensor in expected.items():
        if given[name].shape != tensor.shape:
            message = f"tensor {name} is {tuple(given[name].shape)}; allowed: {tuple(tensor.shape)}"
            raise CheckpointError(message)
        if given[name].dtype not in STORED_DTYPES:
            allowed = ", ".join(map(str, STORED_DTYPES))
            raise CheckpointError(f"tensor {name} is {given[name].dtype}; allowed: {allowed}")
        check_finite(name, given[name].float())
        if name.endswith(".running_var") and bool((given[name] < 0).any()):
            message = f"tensor {name} is {float(given[name].min())}; allowed: 0 and more"
            raise CheckpointError(message)


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Refuse numbers that would turn every result into nonsense."""
    wrong = int((~tensor.isfinite()).sum())
    if wrong:
        message = f"tensor {name} holds NaN or infinity {wrong} times; allowed: finite numbers"
        raise CheckpointError(message)


def is_derived(name: str, config: ModelConfig) -> bool:
    """Whether a state-dictionary entry follows from others and is never stored."""
    tied = config.decoder.tied_embeddings and name == OUTPUT_WEIGHT
    return tied or name.endswith(".num_batches_tracked")


def check_vocabularies(config: ModelConfig, source: Vocabulary, target: Vocabulary) -> None:
    """Refuse vocabularies whose size differs from the network's."""
    for field, pieces, vocabulary in (
        ("source_pieces", config.source_pieces, source),
        ("target_pieces", config.target_pieces, target),
    ):
        if len(vocabulary) != pieces:
            message = f"ModelConfig.{field} is {pieces}; the vocabulary has {len(vocabulary)}"
            raise CheckpointError(message)
