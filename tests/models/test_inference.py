"""Fused and packed layers give what the layers they replace give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from earvoice.models import inference
from earvoice.models.inference import (
    Activation,
    DepthwiseConvolution,
    InferenceLinear,
    RoundedProduct,
    StridedConvolution,
    TwoPartProduct,
    has_fbgemm,
    rounded_rows,
)

pytestmark = pytest.mark.torch

ACTIVATIONS = {
    "none": lambda values: values,
    "relu": torch.relu,
    "swish": functional.silu,
}
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 0.1, torch.float16: 5e-3, torch.int8: 0.15}
ROWS = (1, 3, 4, 32, 33, 100)


def _linear(inputs: int = 48, outputs: int = 40) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs).requires_grad_(requires_grad=False)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", ROWS)
def test_layers_equal_plain_ones(dtype: torch.dtype, activation: Activation, rows: int) -> None:
    """With an activation, for any number of rows, to what the number format can tell."""
    linear, inputs = _linear(), torch.randn(2, rows, 48)
    expected = ACTIVATIONS[activation](linear(inputs))
    output = InferenceLinear.from_linear(linear, dtype, activation)(inputs)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, expected, atol=TOLERANCES[dtype], rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("outputs", [40, 8192], ids=["small", "large"])
def test_sums_are_fused(dtype: torch.dtype, rows: int, outputs: int) -> None:
    """A residual sum gives what two passes give, and leaves the other tensor alone."""
    linear = _linear(outputs=outputs)
    inputs, others = torch.randn(1, rows, 48), torch.randn(1, rows, outputs)
    layer, kept = InferenceLinear.from_linear(linear, dtype), others.clone()
    total = layer.added_to(others, inputs)
    torch.testing.assert_close(total, others + linear(inputs), atol=TOLERANCES[dtype], rtol=0)
    assert total.dtype == torch.float32
    assert torch.equal(others, kept)


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 5000))
def test_few_numbers_of_rows_are_computed(rows: int) -> None:
    """A quarter more rows at most, 31 at most; four numbers are left between two powers of 2."""
    rounded = rounded_rows(rows)
    assert rows <= rounded <= rows + min(31, rows // 4)
    assert rounded_rows(rounded) == rounded
    assert len({rounded_rows(fewer) for fewer in range(1, 129)}) == 24


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 40), chosen=st.data())
def test_int8_rows_do_not_see_each_other(count: int, chosen: st.DataObject) -> None:
    """A row's numbers are the same alone and in any batch, to the last bit."""
    layer = InferenceLinear.from_linear(_linear(), torch.int8)
    inputs = torch.randn(count, 48) * torch.logspace(-3, 3, count)[:, None]
    row = chosen.draw(st.integers(0, count - 1))
    assert torch.equal(layer(inputs)[row], layer(inputs[row : row + 1])[0])


def test_int8_takes_zeros() -> None:
    """A row of zeros gives the bias, a channel of zeros its own bias."""
    linear = _linear()
    linear.weight[3] = 0
    output = InferenceLinear.from_linear(linear, torch.int8)(torch.zeros(2, 48))
    torch.testing.assert_close(output, linear.bias.expand(2, -1))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_int8_hides_no_overflow(wrong: float) -> None:
    """A row that holds no number gives none, as in other formats; its neighbours do not see it."""
    layer = InferenceLinear.from_linear(_linear(), torch.int8)
    inputs = torch.randn(3, 48)
    expected = layer(inputs)
    inputs[1, 7] = wrong
    output = layer(inputs)
    assert not output[1].isfinite().any()
    assert torch.equal(output[[0, 2]], expected[[0, 2]])


def _stored_in_8_bits(weight: torch.Tensor) -> torch.Tensor:
    scales = weight.abs().amax(1, keepdim=True) / 127
    return (weight / scales).round() * scales


@pytest.mark.parametrize("rows", [1, 4])
def test_weights_in_8_bits_are_multiplied_as_they_are(rows: int) -> None:
    """What is rounded are inputs and products, to 8 bits of mantissa; other weights are refused."""
    weight, inputs = _linear(inputs=64).weight, torch.randn(rows, 64)
    kept = _stored_in_8_bits(weight)
    product = RoundedProduct.of(kept)
    assert product is not None
    expected = inputs @ kept.T
    torch.testing.assert_close(product(inputs), expected, atol=0.02, rtol=0.01)
    assert RoundedProduct.of(weight) is None


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("rows", [1, 4, 5])
def test_layers_in_8_bits_have_products_of_few_rows_in_bf16(
    rows: int, activation: Activation
) -> None:
    """They differ from the weights' as little as other products in bf16; in fp32 there are none."""
    linear, inputs = _linear(inputs=64), torch.randn(rows, 1, 64)
    linear.weight.copy_(_stored_in_8_bits(linear.weight))
    layer = InferenceLinear.from_linear(linear, torch.bfloat16, activation)
    expected = ACTIVATIONS[activation](linear(inputs))
    torch.testing.assert_close(layer(inputs), expected, atol=0.02, rtol=0.01)
    assert layer.few_rows is not None
    assert InferenceLinear.from_linear(linear, torch.float32).few_rows is None


@pytest.mark.parametrize("outputs", [40, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_imitated_products_are_rounded_alike(
    monkeypatch: pytest.MonkeyPatch, rows: int, outputs: int
) -> None:
    """Without bf16, float32 products of rounded inputs and weights are rounded to it."""
    monkeypatch.setattr(inference, "imitates", lambda dtype, _device: dtype == torch.bfloat16)
    linear, inputs = _linear(inputs=2, outputs=outputs), torch.randn(rows, 2)
    layer = InferenceLinear.from_linear(linear, torch.bfloat16)
    rounded = [each.bfloat16().float() for each in (inputs, linear.weight, linear.bias)]
    product = layer.product(inputs)
    assert product.dtype == torch.bfloat16
    expected = functional.linear(*rounded)
    torch.testing.assert_close(product.float(), expected, atol=1e-6, rtol=2**-8)
    assert torch.equal(layer(inputs), product.float())


needs_fbgemm = pytest.mark.skipif(not has_fbgemm(), reason="torch has these products on x86")


def _two_part_product() -> tuple[torch.Tensor, TwoPartProduct]:
    weight = _stored_in_8_bits(_linear().weight)
    product = TwoPartProduct.of(weight)
    assert product is not None
    return weight, product


@needs_fbgemm
@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 40), chosen=st.data())
def test_inputs_in_two_parts_are_nearly_exact(count: int, chosen: st.DataObject) -> None:
    """To 14 bits of the largest input; each row to the last bit as if it were alone."""
    weight, product = _two_part_product()
    inputs = torch.randn(count, 48) * torch.logspace(-3, 3, count)[:, None]
    logits, largest = product(inputs), inputs.abs().amax(1, keepdim=True)
    error = (logits - inputs @ weight.T) / (largest * weight.abs().sum(1))
    assert float(error.abs().max()) < 2**-14
    row = chosen.draw(st.integers(0, count - 1))
    assert torch.equal(logits[row], product(inputs[row : row + 1])[0])


@needs_fbgemm
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_inputs_in_two_parts_hide_no_overflow(wrong: float) -> None:
    """A row that holds no number gives none; its neighbours do not see it, nor one of zeros."""
    _, product = _two_part_product()
    inputs = torch.randn(3, 48)
    inputs[2] = 0
    expected = product(inputs)
    assert not expected[2].any()
    inputs[1, 7] = wrong
    output = product(inputs)
    assert not output[1].isfinite().any()
    assert torch.equal(output[[0, 2]], expected[[0, 2]])


def test_only_weights_in_8_bits_take_inputs_in_two_parts() -> None:
    """Others would change; embeddings that are stored in more bits are multiplied in float32."""
    assert TwoPartProduct.of(_linear().weight) is None


@pytest.mark.parametrize(("inputs", "taken"), [(32, True), (33, False), (48, False), (64, True)])
def test_what_would_be_read_beyond_the_end_is_not_multiplied_in_8_bits(
    inputs: int, taken: bool
) -> None:
    """The product reads several inputs at once, whether they are there or not."""
    assert (RoundedProduct.of(torch.ones(5, inputs)) is not None) == taken


@pytest.mark.parametrize("frames", [1, 2, 3, 8, 41])
def test_strided_convolution_is_one(frames: int) -> None:
    """The same as the convolution and its gated linear unit, for odd and even lengths."""
    conv = nn.Conv1d(6, 16, 5, stride=2, padding=2).requires_grad_(requires_grad=False)
    inputs = torch.randn(1, frames, 6)
    expected = functional.glu(conv(inputs.transpose(1, 2)), dim=1).transpose(1, 2)
    output = StridedConvolution(conv, torch.float32, scale=3.0)(inputs)
    torch.testing.assert_close(output, 3.0 * expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(1, 1, 16), (1, 50, 16), (3, 20, 24)])
def test_depthwise_convolution_is_one(shape: tuple[int, int, int]) -> None:
    """The same as the convolution, BatchNorm in evaluation mode, and SiLU."""
    width = shape[2]
    conv = nn.Conv1d(width, width, 5, padding=2, groups=width, bias=False)
    norm = nn.BatchNorm1d(width).eval()
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            tensor.normal_()
        norm.running_var.uniform_(0.5, 2)
        inputs = torch.randn(shape)
        expected = functional.silu(norm(conv(inputs.transpose(1, 2)))).transpose(1, 2)
        output = DepthwiseConvolution(conv, norm)(inputs)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
