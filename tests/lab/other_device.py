"""A second device for machines without one.

Its numbers lie in ordinary memory and are computed by the processor, but torch takes its tensors
for those of another device, and an operation that mixes them with the processor's own raises.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_NAME = "elsewhere"
_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


class MixedDevicesError(Exception):
    """A tensor of the processor met one of the other device."""


class OtherTensor(torch.Tensor):
    """A tensor of the other device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Self:
        """Wrap the numbers."""
        tensor: Self = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=f"{_NAME}:0",
        )
        tensor.held = held
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Only the device itself computes."""
        message = f"{func} outside of OtherDevice"
        raise MixedDevicesError(message)

    def tolist(self) -> Any:
        """Copy the numbers, as from any device."""
        return self.held.tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Save the numbers, as a file that is loaded for the CPU gives them."""
        return self.held.__reduce_ex__(protocol)


class OtherDevice(TorchDispatchMode):
    """While it is entered, the device works like a device of its own."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Compute on the processor; give the result to the device that it belongs to."""
        named = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, named)) if isinstance(x, torch.Tensor)]
        others = {id(x.held): x for x in tensors if isinstance(x, OtherTensor)}
        plain = [x for x in tensors if not isinstance(x, OtherTensor) and x.ndim > 0]
        if others and plain and func not in _COPIES:
            message = f"{func} mixes tensors of two devices"
            raise MixedDevicesError(message)
        there = bool(others)
        if named.get("device") is not None:
            there = named["device"].type == _NAME
            named["device"] = torch.device("cpu")
        args, named = tree_map(lambda x: getattr(x, "held", x), (args, named))
        result = func(*args, **named)
        if not there:
            return result

        def given(value: Any) -> Any:
            """Wrap a tensor; what an operation in place returns is wrapped already."""
            if not isinstance(value, torch.Tensor):
                return value
            return others[id(value)] if id(value) in others else OtherTensor(value)

        # A wrapper made for inference alone could not be a view of one that was not.
        with torch.inference_mode(mode=False):
            return tree_map(given, result)


class _Backend(backend_registration._DummyBackendModule):
    """What torch asks about a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def register_other_device() -> torch.device:
    """Make the device known to torch: once, and for the whole process."""
    backend_registration._setup_privateuseone_for_python_backend(_NAME, _Backend())
    # Parameters that two modules share stay shared when the modules move.
    torch.__future__.set_swap_module_params_on_conversion(True)
    # `torch.tensor` makes what it is given on the CPU and then moves it, so that we see it.
    torch._C._set_only_lift_cpu_tensors(True)
    return torch.device(_NAME)
