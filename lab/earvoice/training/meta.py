"""Meta-training (Finn 2017) as in Han 2020, section 2.2, equations 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn


def meta_backward(
    parameters: Sequence[nn.Parameter],
    meta_train: Callable[[], torch.Tensor],
    meta_test: Callable[[], torch.Tensor],
    rate: float,
) -> float:
    """Leave the meta-gradient in `grad`, for an optimiser; the parameters stay unchanged.

    Equation 1 makes auxiliary parameters, one step of `rate` down the loss of `meta_train`;
    equation 2 takes the gradient of `meta_test` there, without differentiating equation 1.

    Returns:
        The loss of `meta_test` at the auxiliary parameters.
    """
    kept = [parameter.detach().clone() for parameter in parameters]
    for parameter, gradient in zip(parameters, _gradients(meta_train(), parameters), strict=True):
        if gradient is not None:
            parameter.data.sub_(gradient, alpha=rate)
    loss = meta_test()
    gradients = _gradients(loss, parameters)
    for parameter, value, gradient in zip(parameters, kept, gradients, strict=True):
        parameter.data.copy_(value)
        parameter.grad = gradient
    return float(loss.detach())


def _gradients(
    loss: torch.Tensor, parameters: Sequence[nn.Parameter]
) -> Sequence[torch.Tensor | None]:
    """None where a task does not use a parameter."""
    return torch.autograd.grad(loss, parameters, allow_unused=True)
