"""Layers that only infer: the same results as the layers they replace, several times faster.

Measured on one core of an AVX-512 machine: plain float32 products reach 90 GFLOP/s, packed once for
oneDNN 200, in bfloat16 400; a depthwise convolution as a sum of shifted rows takes a fifth of the
time of `conv1d`, which wants its input transposed.
"""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.errors import ModelConfigError

INFERENCE_DTYPES = (torch.float32, torch.bfloat16)
FEW_ROWS = 4
"""Below this many rows a small matrix is multiplied faster without packing."""
SMALL_MATRIX = 2**18
"""Elements of a matrix that is small in this sense."""
TYPICAL_ROWS = 64
"""Number of rows that oneDNN lays packed weights out for; any other number works as well."""
ROW_STEP = 32
"""Above this many rows the number is rounded up to a multiple of it.

oneDNN compiles and keeps a kernel (3 ms, half a megabyte) for every number of rows it meets, and
utterances come in all lengths: without rounding its cache of 1024 kernels overflows.
"""


class InferenceLinear(nn.Module):
    """A linear layer with packed weights; float32 in and out, products in float32 or bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Pack the weights.

        Args:
            weight: [out, in] float32.
            bias: [out] float32, or None.
            dtype: float32 or bfloat16: what weights are rounded to and products computed in.
        """
        super().__init__()
        self.dtype = dtype
        self.in_features = weight.shape[1]
        rounded = weight.detach().to(dtype).contiguous()
        self.bias = None if bias is None else nn.Buffer(bias.detach().to(dtype), persistent=False)
        self.packed = _packed(rounded)
        self.plain: torch.Tensor | None = None
        self.plain_bias: torch.Tensor | None = self.bias
        if self.packed is None:
            self.plain = rounded
        elif weight.numel() < SMALL_MATRIX:
            self.plain = rounded.float()
            self.plain_bias = None if self.bias is None else self.bias.float()

    @classmethod
    def from_linear(cls, linear: nn.Linear, dtype: torch.dtype) -> "InferenceLinear":
        """Take over a trained layer."""
        return cls(linear.weight, linear.bias, dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[…, in] float32 → […, out] float32."""
        few = inputs.numel() < FEW_ROWS * self.in_features
        if self.plain is not None and (few or self.packed is None):
            return functional.linear(
                inputs.to(self.plain.dtype), self.plain, self.plain_bias
            ).float()
        rows = inputs.shape[:-1].numel()
        padding = -rows % ROW_STEP if rows > ROW_STEP else 0
        padded = functional.pad(inputs.reshape(rows, -1), (0, 0, 0, padding)) if padding else inputs
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - no public name
            padded.to(self.dtype), self.packed, self.bias, "none", [], ""
        )
        if padding:
            product = product[:rows].view(*inputs.shape[:-1], -1)
        return product.float()


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in oneDNN's own layout, or None where oneDNN is missing."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weight.device.type != "cpu" or not available:
        return None
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(  # noqa: SLF001 - no public name
        weight, TYPICAL_ROWS
    )
    return packed


class StridedConvolution(nn.Module):
    """A convolution of stride 2 over [B, T, channels], as one product with overlapping rows."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype) -> None:
        super().__init__()
        self.kernel = conv.kernel_size[0]
        self.linear = InferenceLinear(conv.weight.transpose(1, 2).flatten(1), conv.bias, dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, in] float32 → [B, ⌈T / 2⌉, out] float32."""
        batch, frames, channels = inputs.shape
        half = self.kernel // 2
        padded = functional.pad(inputs, (0, 0, half, half))
        windows = padded.as_strided(
            (batch, (frames + 1) // 2, self.kernel * channels),
            (padded.stride(0), 2 * channels, 1),
        )
        output: torch.Tensor = self.linear(windows.contiguous())
        return output


class DepthwiseConvolution(nn.Module):
    """A depthwise convolution over [B, T, channels] with a BatchNorm folded into it."""

    def __init__(self, conv: nn.Conv1d, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        if norm.running_var is None or norm.running_mean is None:
            message = "BatchNorm keeps no running statistics; allowed: running statistics"
            raise ModelConfigError(message)
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        taps = (conv.weight[:, 0] * scale[:, None]).T.detach().contiguous()
        self.taps = nn.Buffer(taps, persistent=False)
        bias = (norm.bias - norm.running_mean * scale).detach()
        self.bias = nn.Buffer(bias, persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, channels] → [B, T, channels] float32."""
        half = self.taps.shape[0] // 2
        padded = functional.pad(inputs, (0, 0, half, half))
        output = self.bias.expand(inputs.shape).clone()
        for shift, tap in enumerate(self.taps):
            output.addcmul_(padded[:, shift : shift + inputs.shape[1]], tap)
        return output


def check_inference_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that linear layers cannot infer in.

    Raises:
        ModelConfigError: it is neither float32 nor bfloat16.
    """
    if dtype not in INFERENCE_DTYPES:
        message = f"dtype is {dtype}; allowed: {', '.join(map(str, INFERENCE_DTYPES))}"
        raise ModelConfigError(message)


def replace_linears(module: nn.Module, dtype: torch.dtype) -> None:
    """Put an `InferenceLinear` in the place of every `nn.Linear` below `module`."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, InferenceLinear.from_linear(child, dtype))
        else:
            replace_linears(child, dtype)
