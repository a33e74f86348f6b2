"""``python -m …feature_process SOUND CHECKPOINT OUTPUT``: features of recorded sound, as arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from earvoice.evaluation.verification.feature_verification import RAW_SUFFIX
from earvoice.evaluation.verification.forward_reference import read_arrays
from earvoice.models.checkpoint import read_parts
from earvoice.models.frontend import FeatureNormalisation, Filterbank


def main() -> int:
    """Compute the features of every utterance; return the exit status."""
    sound, checkpoint, output = map(Path, sys.argv[1:])
    arrays = read_arrays(sound)
    normalisation = _statistics(arrays) or read_parts(checkpoint).normalisation
    filterbank, computed = Filterbank(), {}
    for name, samples in arrays.items():
        if samples.dtype == np.int16:
            raw = filterbank(torch.from_numpy(samples.astype(np.float32)))
            computed[name + RAW_SUFFIX] = raw.numpy()
            computed[name] = normalisation(raw).numpy()
    np.savez(output, allow_pickle=False, **computed)
    return 0


def _statistics(arrays: Mapping[str, np.ndarray]) -> FeatureNormalisation | None:
    """The statistics beside the sound, if there are any: those of another model, perhaps."""
    if not {"gcmvn_mean", "gcmvn_std"} <= arrays.keys():
        return None
    mean, deviation = arrays["gcmvn_mean"], arrays["gcmvn_std"]
    return FeatureNormalisation(torch.from_numpy(mean), torch.from_numpy(deviation))


if __name__ == "__main__":
    sys.exit(main())
