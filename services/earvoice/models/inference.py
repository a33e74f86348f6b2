"""Linear layers and convolutions for inference only: the same results, several times faster.

oneDNN multiplies by weights that are packed once, and adds the bias, an activation or another
tensor in the same pass over the result. On Intel processors MKL multiplies small matrices faster,
with weights stored column by column. In 8-bit integers, weights are quantised once per output
channel, inputs per row as they come: each row has a scale of its own, so that a session's numbers
do not depend on who shares its batch.
"""

import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.errors import ModelError

LARGEST = 127


def _scales(rows: torch.Tensor, largest_integer: int = LARGEST) -> torch.Tensor:
    """[n, m] → [n, 1]: the value of 1 in 8 bits in each row; 1 for a row that is almost zero.

    Not finite for a row with NaN or infinity, which 8 bits cannot express; nor is the result then.
    """
    largest = rows.abs().amax(1, keepdim=True)
    least = torch.finfo(largest.dtype).tiny
    return torch.where(largest < least, torch.ones_like(largest), largest / largest_integer)


def quantised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, m] → the same in int8, and [n, 1] one scale for each row (symmetric)."""
    scales = _scales(rows)
    return (rows / scales).round_().to(torch.int8), scales


INFERENCE_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
FEW_ROWS = 4
"""Below this many rows a small matrix is multiplied faster without packing."""
SMALL_MATRIX = 2**19
"""Most elements of a matrix that is small in this sense."""
TYPICAL_ROWS = 64
"""Number of rows that oneDNN lays out packed weights for; any other number works as well."""
LARGEST_ROW_STEP = 32
STEPS_AN_OCTAVE = 4

FEW_ROWS_IN_8_BITS = 4
"""Up to this many rows a product takes as long as reading its weights from memory."""
INPUTS_AT_ONCE = 32
"""Inputs the 8-bit product reads at once, on any processor; it reads a rest beyond the end."""
LARGEST_IN_7_BITS = 63
"""Of inputs; without VNNI, two products with 8-bit weights are added in 16 bits."""
ALIKE = 1e-4
"""How far rounding to float32 may have moved a number, as a share of an 8-bit step."""

Activation = Literal["none", "relu", "gelu", "swish"]

_PLAIN = {
    "none": lambda values: values,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "swish": functional.silu,
}


def rounded_rows(rows: int) -> int:
    """The number of rows to compute where `rows` are wanted, rounded up to one of a few numbers.

    oneDNN compiles and keeps a kernel (1.5 ms, half a megabyte) for every number of rows it meets,
    and utterances come in all lengths: without rounding, kernels would take half a gigabyte.
    """
    step = min(LARGEST_ROW_STEP, (1 << rows.bit_length() - 1) // STEPS_AN_OCTAVE)
    return rows + -rows % step if step > 1 else rows


class InferenceLinear(nn.Module):
    """A linear layer with packed weights and perhaps an activation; products in one dtype."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        activation: Activation = "none",
    ) -> None:
        """`weight` [out, in] and `bias` [out] are float32; products are computed in `dtype`."""
        super().__init__()
        self.dtype = dtype
        self.in_features = weight.shape[1]
        self.activation = activation
        self.quantised: tuple[torch.Tensor, torch.Tensor] | None = None
        self.packed: torch.Tensor | None = None
        self.plain: torch.Tensor | None = None
        self.few_rows = RoundedProduct.of(weight.detach()) if dtype == torch.bfloat16 else None
        """In bf16, with weights that are stored in 8 bits: both are rounded alike."""
        kept = torch.float32 if dtype == torch.int8 else dtype
        self.native_dtype = torch.float32 if imitates(dtype, weight.device) else kept
        """The shortest in which the processor computes with products."""
        if bias is not None:
            bias = nn.Buffer(bias.detach().to(kept).to(self.native_dtype), persistent=False)
        self.bias = bias
        self.plain_bias: torch.Tensor | None = self.bias
        if dtype == torch.int8:
            values, scales = quantised(weight.detach())
            # [in, out] by strides, as the product takes it.
            self.quantised = values.T, scales.T.contiguous()
        else:
            self._pack(weight.detach().to(dtype).to(self.native_dtype).contiguous())

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, dtype: torch.dtype, activation: Activation = "none"
    ) -> "InferenceLinear":
        return cls(linear.weight, linear.bias, dtype, activation)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out] float32."""
        product = self.product(inputs)
        return product if product.dtype == torch.float32 else product.float()

    def product(self, inputs: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out] in the dtype of the products; float32 where weights are in 8 bits."""
        if self.quantised is not None:
            return self._activated(self._quantised_product(inputs, *self.quantised))
        if self.few_rows is not None and inputs.shape[:-1].numel() <= FEW_ROWS_IN_8_BITS:
            few = self.few_rows(inputs)
            return self._activated(few if self.bias is None else few.add_(self.bias))
        if self._is_plain(inputs):
            return self._plain(inputs)
        rows = inputs.shape[:-1].numel()
        even = self._is_even(inputs, rows)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(  # noqa: SLF001 - no public name
            inputs if even else self._rounded(inputs, rows),
            self.packed,
            self.bias,
            self.activation,
            [],
            "none" if self.activation == "gelu" else "",
        )
        if not even:
            product = product[:rows].view(*inputs.shape[:-1], -1)
        return product if product.dtype == self.dtype else product.to(self.dtype)

    def added_to(self, others: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """[…, out] float32 plus the layer's output for […, in] → […, out] float32."""
        # A sum in bfloat16 would round the other summand, the residual stream, each time.
        if self.dtype != torch.float32 or self.activation != "none":
            return others + self.product(inputs)
        if self._is_plain(inputs):
            return self._plain(inputs).add_(others)
        rows = inputs.shape[:-1].numel()
        even = self._is_even(inputs, rows)
        total: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(  # noqa: SLF001 - no public name
            inputs if even else self._rounded(inputs, rows),
            others if even else self._rounded(others, rows),
            self.packed,
            self.bias,
            "add",
        )
        return total if even else total[:rows].view(others.shape)

    def _quantised_product(
        self, inputs: torch.Tensor, weight: torch.Tensor, weight_scales: torch.Tensor
    ) -> torch.Tensor:
        values, scales = quantised(inputs.reshape(-1, inputs.shape[-1]).float())
        sums = torch._int_mm(values, weight)  # noqa: SLF001 - it has no public name
        product = (sums * scales).mul_(weight_scales)
        if self.bias is not None:
            product.add_(self.bias)
        return product.view(*inputs.shape[:-1], -1)

    def _is_even(self, inputs: torch.Tensor, rows: int) -> bool:
        """Whether the inputs can be multiplied as they are: even a call that does nothing costs."""
        is_exact = inputs.dtype == self.dtype == self.native_dtype
        return is_exact and rounded_rows(rows) == rows

    def _rounded(self, values: torch.Tensor, rows: int) -> torch.Tensor:
        """[…, n] of `rows` rows → [rounded rows, n], rounded to the dtype of the products."""
        flat = values.reshape(rows, -1).to(self.dtype).to(self.native_dtype)
        padding = rounded_rows(rows) - rows
        return functional.pad(flat, (0, 0, 0, padding)) if padding else flat

    def _plain(self, inputs: torch.Tensor) -> torch.Tensor:
        assert self.plain is not None  # noqa: S101 - for the type checker
        if self.native_dtype != self.dtype:
            inputs = inputs.to(self.dtype)  # imitated products round them, too
        if inputs.dtype != self.plain.dtype:
            inputs = inputs.to(self.plain.dtype)
        product = self._activated(functional.linear(inputs, self.plain, self.plain_bias))
        return product if product.dtype == self.dtype else product.to(self.dtype)

    def _activated(self, values: torch.Tensor) -> torch.Tensor:
        activated: torch.Tensor = _PLAIN[self.activation](values)
        return activated

    def _is_plain(self, inputs: torch.Tensor) -> bool:
        few = inputs.numel() < FEW_ROWS * self.in_features
        return self.plain is not None and (few or self.packed is None)

    def _pack(self, weight: torch.Tensor) -> None:
        small = weight.numel() <= SMALL_MATRIX
        if not (small and weight.dtype == torch.float32 and has_fast_mkl(weight.device)):
            self.packed = packed_weight(weight)
        if self.packed is None or (small and self.few_rows is None):
            # Stored column by column: a third faster than row by row.
            plain = weight if self.packed is None else weight.float()
            self.plain = plain.T.contiguous().T
            self.plain_bias = None if self.bias is None else self.bias.to(self.plain.dtype)


def packed_weight(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in oneDNN's own layout; None where oneDNN is missing or has none for the dtype."""
    if not has_onednn(weight.device) or weight.dtype == torch.float16:
        return None
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(  # noqa: SLF001 - no public name
        weight, TYPICAL_ROWS
    )
    return packed


def imitates(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether bf16 products are imitated: computed in fp32 from rounded numbers, without AVX-512.

    The results are those of a processor with bf16, at the speed of fp32.
    """
    if dtype != torch.bfloat16 or not has_onednn(device):
        return False
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001 - no public name
    return not supported


def has_fast_mkl(device: torch.device) -> bool:
    """Whether plain products go through Intel's library on an Intel processor.

    It multiplies small float32 matrices up to twice as fast as oneDNN, and compiles nothing for
    each number of rows. On an EPYC (Zen 3) it is faster alone, but the services gain nothing.
    """
    if device.type != "cpu" or not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    return "GenuineIntel" in _processor_description()


@cache
def _processor_description() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def has_onednn(device: torch.device) -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and available


def check_inference_dtype(dtype: torch.dtype) -> None:
    if dtype not in INFERENCE_DTYPES:
        raise ModelError(f"dtype is {dtype}; allowed: {', '.join(map(str, INFERENCE_DTYPES))}")


def prepare_linears(module: nn.Module, dtype: torch.dtype) -> None:
    """Replace every `nn.Linear` below `module` with an `InferenceLinear`.

    Submodules with a method `prepare` do so themselves.
    """
    for name, child in list(module.named_children()):
        prepare = getattr(child, "prepare", None)
        if prepare is not None:
            prepare(dtype)
        elif isinstance(child, nn.Linear):
            setattr(module, name, InferenceLinear.from_linear(child, dtype))
        else:
            prepare_linears(child, dtype)


class RoundedProduct:
    """Products of few rows with weights in 8 bits, each row with a scale.

    With few rows, reading the weights takes most of the time, so these are kept in a quarter of the
    memory. Inputs and product are rounded to bf16.
    """

    def __init__(self, values: torch.Tensor, scales: torch.Tensor) -> None:
        """[out, in] int8 and [out] float32."""
        self._values, self._scales = values, scales
        # The product takes scales in bf16, which would round ours: they are applied after it.
        self._ones = torch.ones_like(scales, dtype=torch.bfloat16)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out] float32."""
        product = torch._weight_int8pack_mm(  # noqa: SLF001 - it has no public name
            inputs.reshape(-1, inputs.shape[-1]).bfloat16(), self._values, self._ones
        )
        return product.float().mul_(self._scales).view(*inputs.shape[:-1], -1)

    @classmethod
    def of(cls, weight: torch.Tensor) -> "RoundedProduct | None":
        """For an [out, in] float32 weight; None where it is not made of such numbers."""
        stored = None if weight.shape[1] % INPUTS_AT_ONCE else _as_stored(weight)
        return None if stored is None else cls(*stored)


class TwoPartProduct:
    """Products with weights in 8 bits, each row with a scale, for inputs of 14 bits.

    Inputs are the sum of two parts of 7 bits, which are multiplied together: as exact as products
    in float32 are for finding the likeliest piece, and reading a quarter of the memory.
    """

    def __init__(self, values: torch.Tensor, scales: torch.Tensor) -> None:
        """[out, in] int8 and [out] float32."""
        zeros = torch.zeros(len(values), dtype=torch.long)
        with warnings.catch_warnings():
            # Tensors of this kind are deprecated, the product that takes them has no successor.
            warnings.simplefilter("ignore", UserWarning)
            stored = torch._make_per_channel_quantized_tensor(  # noqa: SLF001 - no public name
                values, scales.double(), zeros, axis=0
            )
            self._packed = torch.ops.quantized.linear_prepack(stored, None)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, in] float32 → [n, out] float32; each row's numbers are its own alone."""
        scales = _scales(inputs, LARGEST_IN_7_BITS)
        scaled = inputs / scales
        first = scaled.round()
        second = scaled.sub_(first).mul_(2 * LARGEST_IN_7_BITS)
        products: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            torch.cat((first, second)), 1.0, LARGEST_IN_7_BITS + 1, self._packed
        )
        total = products[: len(inputs)]
        total.add_(products[len(inputs) :], alpha=0.5 / LARGEST_IN_7_BITS)
        return total.mul_(scales)

    @classmethod
    def of(cls, weight: torch.Tensor) -> "TwoPartProduct | None":
        """For an [out, in] float32 weight; None where it is not made of such numbers.

        None, too, where the processor or torch lacks the product.
        """
        stored = _as_stored(weight) if has_fbgemm() else None
        return None if stored is None else cls(*stored)


def has_fbgemm() -> bool:
    """Whether torch multiplies by packed 8-bit weights here: on x86, while it has such tensors."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32"
    )


def _as_stored(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """[out, in] float32 → [out, in] int8 and [out] float32; None if it is not made of those.

    None, too, on a GPU, which lacks the products that take them.
    """
    if weight.device.type != "cpu":
        return None
    values, scales = quantised(weight)
    difference = (values * scales).sub_(weight).abs_().amax(1, keepdim=True)
    same = bool((difference <= ALIKE * scales).all())
    return (values, scales[:, 0].contiguous()) if same else None


class StridedConvolution(nn.Module):
    """A convolution over [B, T, channels] as a product, with an activation, perhaps gated."""

    def __init__(
        self,
        conv: nn.Conv1d,
        dtype: torch.dtype,
        scale: float = 1.0,
        activation: Activation | Literal["gated"] = "gated",
    ) -> None:
        super().__init__()
        if conv.bias is None:
            raise ModelError("a strided convolution has no bias; allowed: with bias")
        self.kernel, self.stride = conv.kernel_size[0], conv.stride[0]
        self.gated = activation == "gated"
        weight, bias = conv.weight.detach().transpose(1, 2).flatten(1), conv.bias.detach()
        # Of the halves that the gated linear unit multiplies, the first takes the scale.
        factors = torch.ones_like(bias)
        factors[: len(bias) // 2] = scale
        self.linear = InferenceLinear(
            weight * factors[:, None],
            bias * factors,
            dtype,
            "none" if activation == "gated" else activation,
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, in] float32 → [B, ⌈T / stride⌉, out] float32."""
        batch, frames, channels = inputs.shape
        half = self.kernel // 2
        padded = functional.pad(inputs, (0, 0, half, half))
        windows = padded.as_strided(
            (batch, -(-frames // self.stride), self.kernel * channels),
            (padded.stride(0), self.stride * channels, 1),
        )
        product: torch.Tensor = self.linear(windows.contiguous())
        return functional.glu(product, dim=-1) if self.gated else product


class DepthwiseConvolution(nn.Module):
    """A depthwise convolution over time with a BatchNorm folded into it, then SiLU."""

    def __init__(self, conv: nn.Conv1d, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        if norm.running_var is None or norm.running_mean is None:
            raise ModelError("BatchNorm keeps no running statistics; allowed: running statistics")
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        weight = (conv.weight * scale[:, None, None]).detach()
        self.padding = conv.kernel_size[0] // 2
        self.weight: torch.Tensor = nn.Buffer(weight, persistent=False)
        bias = (norm.bias - norm.running_mean * scale).detach()
        self.bias: torch.Tensor = nn.Buffer(bias, persistent=False)
        # As an image of one row, channels last, it needs no transpose, unlike for conv1d.
        self.image_weight = weight[:, :, None].contiguous(memory_format=torch.channels_last)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, channels] → [B, T, channels] float32."""
        if not has_onednn(inputs.device):
            mixed = functional.conv1d(
                inputs.transpose(1, 2),
                self.weight,
                self.bias,
                padding=self.padding,
                groups=len(self.bias),
            )
            return functional.silu(mixed).transpose(1, 2)
        batch, frames, channels = inputs.shape
        image = inputs.contiguous().as_strided(
            (batch, channels, 1, frames), (frames * channels, 1, frames * channels, channels)
        )
        mixed = torch.ops.mkldnn._convolution_pointwise(  # noqa: SLF001 - no public name
            image,
            self.image_weight,
            self.bias,
            [0, self.padding],
            [1, 1],
            [1, 1],
            channels,
            "swish",
            [],
            "",
        )
        output: torch.Tensor = mixed[:, :, 0].transpose(1, 2).contiguous()
        return output
