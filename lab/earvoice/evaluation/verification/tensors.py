"""What the papers' code computed for a checkpoint: named tensors, by compression and utterance."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from earvoice.evaluation.log import LogError

BATCH_PREFIX = "batch"
"""For example, `batch2` is the first two utterances, padded in one batch."""


Reference = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
"""Tensors by compression, utterance and name."""


def read_reference(path: Path, strategy: str | None) -> Reference:
    """Read arrays that are stored under `<compression>/<utterance>/<name>`.

    Args:
        strategy: the compression to read; None reads all.
    """
    reference: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for key, array in read_arrays(path).items():
        match key.split("/"):
            case [compression, utterance, name]:
                reference.setdefault(compression, {}).setdefault(utterance, {})[name] = array
            case _:
                raise LogError(str(path), f"has {key}; allowed: compression/utterance/name")
    if strategy is None:
        return reference
    if strategy not in reference:
        raise LogError(str(path), f"has no {strategy!r}; allowed: {', '.join(reference)}")
    return {strategy: reference[strategy]}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    # A lone array is not a context manager, and has no names.
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise LogError(str(path), f"is not an .npz file of arrays ({error})") from error


ENCODER_TOLERANCE = 2e-5
LOGIT_TOLERANCE = 1e-4
FEATURE_TOLERANCE, OTHER_SUMS_TOLERANCE = 4e-6, 5e-4
"""For features: on a processor that sums with AVX-512, as the reference's did, and elsewhere."""
ROUNDINGS = 32
"""For unnormalised tensors, of the largest number: a sum of n products rounds √n times."""

_TOLERANCES = (
    ("greedy_logprobs", LOGIT_TOLERANCE),
    ("tf_logits", LOGIT_TOLERANCE),
    ("ctc_logprobs", LOGIT_TOLERANCE),
    ("features", FEATURE_TOLERANCE),
    ("subsample", ENCODER_TOLERANCE),
    ("enc_layer", ENCODER_TOLERANCE),
    ("encoder_out", ENCODER_TOLERANCE),
    ("cross_attn", ENCODER_TOLERANCE),
    # Tokens, labels, lengths and masks must be equal.
    ("greedy_tokens", 0.0),
    ("ctc_groups", 0.0),
    ("ctc_lengths", 0.0),
    ("padding_mask", 0.0),
)


@dataclass(frozen=True)
class TensorDifference:
    """One tensor compared with its reference.

    Attributes:
        largest: largest absolute difference; infinite if shapes differ or a value is nan.
    """

    name: str
    place: str
    largest: float
    tolerance: float

    @property
    def is_within(self) -> bool:
        return self.largest <= self.tolerance


def tolerance_of(name: str, reference: np.ndarray) -> float | None:
    """The largest allowed difference of a tensor; None for an unknown name.

    The subsampler's output is not normalised: where its numbers are large, a few roundings of
    float32 exceed the tolerance, even between two runs of the reference.
    """
    tolerance = next((limit for start, limit in _TOLERANCES if name.startswith(start)), None)
    if tolerance is not None and name.startswith("subsample"):
        eps = float(np.finfo(np.float32).eps)
        return max(tolerance, ROUNDINGS * eps * float(np.abs(reference).max(initial=0.0)))
    return tolerance


def largest_difference(
    value: np.ndarray, reference: np.ndarray, valid: np.ndarray | None = None
) -> float:
    if value.shape != reference.shape:
        return float("inf")
    value, reference = value.astype(np.float64), reference.astype(np.float64)
    # The reference's search sets to -inf what it never chooses.
    difference = np.abs(value - reference)[~np.isneginf(reference) if valid is None else valid]
    largest = float(difference.max(initial=0.0))
    return largest if np.isfinite(largest) else float("inf")


def table(differences: Iterable[TensorDifference]) -> list[str]:
    """A line for the worst place of each tensor name, and for every place beyond the tolerance."""
    by_name: dict[str, list[TensorDifference]] = {}
    for difference in differences:
        by_name.setdefault(difference.name, []).append(difference)
    width = max((len(name) for name in by_name), default=6)
    lines = [f"{'tensor':<{width}}  largest difference  tolerance  of"]
    for name, found in by_name.items():
        worst = max(found, key=lambda item: item.largest)
        others = [item for item in found if not item.is_within and item is not worst]
        lines += [_line(name, item, width) for item in (worst, *others)]
    return lines


def _line(name: str, item: TensorDifference, width: int) -> str:
    allowed = f"{item.tolerance:.0e}" if item.tolerance else "equal"
    mark = "" if item.is_within else "  PAST THE TOLERANCE"
    return f"{name:<{width}}  {item.largest:<18.2g}  {allowed:<9}  {item.place}{mark}"


def summary(differences: Sequence[TensorDifference]) -> str:
    within = sum(item.is_within for item in differences)
    return f"{within} of {len(differences)} tensors are within their tolerance"
