"""How far two float32 filterbanks of the same sound may lie apart."""

import torch

AGREEMENT = 4e-6
"""What two machines agree to where their Fourier transforms round alike."""
ROUNDINGS = 64.0
"""Of the loudest mel energy of a frame: the libraries choose a transform by the processor, and
between two of them 33 were seen."""


def filterbank_tolerance(reference: torch.Tensor) -> torch.Tensor:
    """How far each log energy may be from the reference's.

    A transform rounds in proportion to the loudest part of its frame, so an energy e beside the
    loudest E has a relative error of some eps √(E / e): nothing in loud bins, much in silent ones.

    Args:
        reference: [T, 80] float32 natural logarithms of mel energies, not normalised.

    Returns:
        [T, 80] float32, at least 4e-6.
    """
    loudest = reference.amax(1, keepdim=True)
    eps = torch.finfo(torch.float32).eps
    return AGREEMENT + ROUNDINGS * eps * torch.exp((loudest - reference) / 2)


def assert_filterbank(value: torch.Tensor, reference: torch.Tensor) -> None:
    """Fail where a log energy is further from the reference than rounding explains."""
    assert value.shape == reference.shape
    excess = (value - reference).abs() / filterbank_tolerance(reference)
    assert float(excess.max()) <= 1.0, f"{float(excess.max()):.2f} times the tolerance"
