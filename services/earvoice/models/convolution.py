"""The encoder's convolutions, for inference alone."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.errors import ModelConfigError
from earvoice.models.inference import InferenceLinear, has_onednn


class StridedConvolution(nn.Module):
    """A convolution of stride 2 over [B, T, channels] as a product, and its gated linear unit."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype, scale: float = 1.0) -> None:
        super().__init__()
        if conv.bias is None:
            raise ModelConfigError("a strided convolution has no bias; allowed: with bias")
        self.kernel = conv.kernel_size[0]
        weight, bias = conv.weight.detach().transpose(1, 2).flatten(1), conv.bias.detach()
        # Of the halves that the gated linear unit multiplies, the first takes the scale.
        factors = torch.ones_like(bias)
        factors[: len(bias) // 2] = scale
        self.linear = InferenceLinear(weight * factors[:, None], bias * factors, dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, in] float32 → [B, ⌈T / 2⌉, out] float32."""
        batch, frames, channels = inputs.shape
        half = self.kernel // 2
        padded = functional.pad(inputs, (0, 0, half, half))
        windows = padded.as_strided(
            (batch, (frames + 1) // 2, self.kernel * channels),
            (padded.stride(0), 2 * channels, 1),
        )
        return functional.glu(self.linear(windows.contiguous()), dim=-1)


class DepthwiseConvolution(nn.Module):
    """A depthwise convolution over time with a BatchNorm folded into it, then SiLU."""

    def __init__(self, conv: nn.Conv1d, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        if norm.running_var is None or norm.running_mean is None:
            message = "BatchNorm keeps no running statistics; allowed: running statistics"
            raise ModelConfigError(message)
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        weight = (conv.weight * scale[:, None, None]).detach()
        self.padding = conv.kernel_size[0] // 2
        self.weight: torch.Tensor = nn.Buffer(weight, persistent=False)
        bias = (norm.bias - norm.running_mean * scale).detach()
        self.bias: torch.Tensor = nn.Buffer(bias, persistent=False)
        # An image of one row, channels last: no transpose, as conv1d would want it.
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
