"""Our filterbank beside the one the papers' code used, on the same sound.

A Fourier transform in float32 rounds in its own order on each kind of processor: between two of
them, bins without sound differ by 1e-3. So ours is computed in a process of its own, by the order
that the reference's machine used. What is left is what our code does differently.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from earvoice.evaluation.log import LogError
from earvoice.evaluation.verification.tensors import (
    FEATURE_TOLERANCE,
    TensorDifference,
    largest_difference,
    read_arrays,
)
from earvoice.models.checkpoint import read_parts
from earvoice.models.frontend import FeatureNormalisation, Filterbank

REFERENCE_PROCESSOR = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
"""What makes the library of transforms round as it does on the reference's machine."""
RAW_SUFFIX = "_fbank_raw"


def verify_features(
    sound: Path, checkpoint: Path, features: Mapping[str, np.ndarray]
) -> Iterator[TensorDifference]:
    """Compare raw and normalised features of every utterance that there is sound of.

    Args:
        sound: `.npz` of int16 samples by utterance, with its raw filterbank beside each.
        checkpoint: whose statistics normalise where none stand beside the sound.
        features: [T, mel] float32 by utterance, normalised.
    """
    reference = read_arrays(sound)
    computed = _computed_apart(sound, checkpoint)
    for utterance in (name for name in features if name in reference):
        pairs = {
            "features": (computed[utterance], features[utterance]),
            "features_raw": (computed[utterance + RAW_SUFFIX], reference[utterance + RAW_SUFFIX]),
        }
        for name, (ours, theirs) in pairs.items():
            largest = largest_difference(ours, theirs)
            yield TensorDifference(name, utterance, largest, FEATURE_TOLERANCE)


def _computed_apart(sound: Path, checkpoint: Path) -> dict[str, np.ndarray]:
    with TemporaryDirectory() as folder:
        output = Path(folder) / "features.npz"
        module = "earvoice.evaluation.verification.features"
        process = subprocess.run(
            [sys.executable, "-m", module, str(sound), str(checkpoint), str(output)],
            env={**os.environ, **REFERENCE_PROCESSOR},
            check=False,
            capture_output=True,
            text=True,
        )
        if process.returncode:
            raise LogError(str(sound), f"gave no features: {process.stderr.strip()}")
        return read_arrays(output)


def main() -> int:
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
