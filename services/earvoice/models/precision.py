"""A model's device and number format, and trials of what a format does to its translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch

from earvoice.api.v1 import types_pb2
from earvoice.models.config import ModelRecord
from earvoice.models.errors import ModelError
from earvoice.runtime.parameter import parameter


def chosen_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to compute on; `auto` takes a GPU when there is one."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelError("device = 'cuda': torch sees no GPU; allowed here: 'cpu', 'auto'")
    return torch.device("cuda")


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether products in bf16 are computed natively, not imitated."""
    supported = False
    if device.type == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        supported = torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 - it has no public name
    return supported


Precision = Literal["fp32", "bf16", "fp16", "int8"]

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
ELEMENT_TYPES = {
    torch.float32: types_pb2.ELEMENT_TYPE_FLOAT32,
    torch.bfloat16: types_pb2.ELEMENT_TYPE_BFLOAT16,
    torch.float16: types_pb2.ELEMENT_TYPE_FLOAT16,
    torch.int8: types_pb2.ELEMENT_TYPE_INT8,
}
"""As reported in a model's description."""
LARGEST_LOSS_BLEU = 1.0
"""What the results page counts as a difference."""


@dataclasses.dataclass(frozen=True)
class PrecisionTrial(ModelRecord):
    """How translations in a number format differ from those in fp32, on a reference set."""

    precision: Precision
    target_language: str
    input_count: int = parameter(minimum=1, maximum=10_000_000)
    equal_share: float = parameter(minimum=0.0, maximum=1.0)
    """Share of hypotheses that are equal, offline and greedy."""
    bleu_difference: float = parameter(minimum=-100.0, maximum=100.0)
    """BLEU minus that of fp32."""
    least_bleu_difference: float = parameter(-100.0, minimum=-100.0, maximum=100.0)
    """The lower end of its 95 % interval; a trial recorded without it has not passed."""

    @property
    def passed(self) -> bool:
        """Whether BLEU is less than 1 lower, with 95 % confidence, however texts differ."""
        return self.least_bleu_difference > -LARGEST_LOSS_BLEU


def bears(precision: Precision, trials: Sequence[PrecisionTrial], languages: Sequence[str]) -> bool:
    """Whether a model has passed its trial in every language that it writes."""
    passed = {
        trial.target_language for trial in trials if trial.precision == precision and trial.passed
    }
    return passed.issuperset(languages)


def chosen_dtype(
    wanted: Precision | Literal["auto"],
    device: torch.device,
    *,
    bears_bfloat16: bool,
    in_8_bits: bool = False,
) -> torch.dtype:
    """Return the number format of the matrix products.

    Args:
        wanted: `auto` takes bf16 where it is fast and the model passed its trial, else fp32.
        in_8_bits: whether the weights are stored in 8 bits and mostly multiplied with few rows:
            such products are faster in bf16 on every processor.
    """
    if wanted == "auto":
        is_fast = has_fast_bfloat16(device) or (in_8_bits and device.type == "cpu")
        wanted = "bf16" if bears_bfloat16 and is_fast else "fp32"
    if wanted == "int8" and device.type != "cpu":
        raise ModelError(
            "precision = 'int8' on a GPU; allowed there: 'fp32', 'bf16', 'fp16', 'auto'"
        )
    if wanted == "fp16" and device.type == "cpu":
        raise ModelError(
            "precision = 'fp16' on a processor; allowed there: 'fp32', 'bf16', 'int8', 'auto'"
        )
    return DTYPES[wanted]
