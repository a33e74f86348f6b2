"""A checkpoint through our networks, tensor by tensor beside what the papers' code computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.verification.forward_pass import ForwardPass, valid_steps
from earvoice.evaluation.verification.forward_reference import BATCH_PREFIX, ForwardReference
from earvoice.evaluation.verification.tensor_difference import (
    TensorDifference,
    largest_difference,
    tolerance_of,
)
from earvoice.models.assembly import CheckpointParts, build_network
from earvoice.models.translation import SpeechTranslationModel

PLAIN = "layer by layer"
SERVED = "as served"


def verify_model(
    parts: CheckpointParts,
    reference: ForwardReference,
    features: Mapping[str, np.ndarray],
    strategy: str | None,
    *,
    shifts_by_batch: bool,
) -> Iterator[TensorDifference]:
    """Compare every tensor of the reference, computed layer by layer and as the services do.

    Args:
        parts: the checkpoint.
        reference: what the papers' code computed.
        features: [T, mel] float32 by utterance, normalised.
        strategy: the compression to compare; None takes all.
        shifts_by_batch: see `ForwardPass`.

    Raises:
        LogError: there is no such compression, an utterance has no features, or a tensor has a
            name that is not known.
    """
    for name in reference.choose(strategy):
        for way in (PLAIN, SERVED):
            network = _network(parts, name)
            if way == SERVED:
                network.prepare_inference(torch.float32)
            forward = ForwardPass(network, watched=way == PLAIN, shifts_by_batch=shifts_by_batch)
            for utterance in reference.utterances(name):
                if way == SERVED and utterance.startswith(BATCH_PREFIX):
                    continue  # The services pad nothing on a CPU.
                expected = reference.tensors(name, utterance)
                found = _computed(forward, utterance, features, expected)
                place = f"{name}/{utterance}, {way}"
                yield from _compared(found, expected, place, complete=way == PLAIN)


def _network(parts: CheckpointParts, strategy: str) -> SpeechTranslationModel:
    values = {**parts.config.encoder.to_dict(), "compression": strategy}
    encoder = type(parts.config.encoder).from_dict(values)
    return build_network(dataclasses.replace(parts.config, encoder=encoder), parts.tensors)


def _computed(
    forward: ForwardPass,
    utterance: str,
    features: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    if not utterance.startswith(BATCH_PREFIX):
        tokens = expected.get("greedy_tokens")
        return forward.utterance(
            _features_of(utterance, features), None if tokens is None else tokens.tolist()
        )
    count = int(utterance.removeprefix(BATCH_PREFIX))
    return forward.batch([_features_of(name, features) for name in list(features)[:count]])


def _features_of(utterance: str, features: Mapping[str, np.ndarray]) -> np.ndarray:
    if utterance not in features:
        raise LogError(utterance, f"has no features; there are those of {', '.join(features)}")
    return features[utterance]


def _compared(
    found: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    place: str,
    *,
    complete: bool,
) -> Iterator[TensorDifference]:
    for name, reference in expected.items():
        tolerance = tolerance_of(name, reference)
        if tolerance is None or (complete and name not in found):
            raise LogError(f"{place}: {name}", "is not a tensor of this network that is known")
        if name in found:
            valid = valid_steps(name, expected)
            largest = largest_difference(found[name], reference, valid)
            yield TensorDifference(name, place, largest, tolerance)


def feature_files(forward: Path, features: Path | None) -> tuple[Path, Path | None]:
    """The features of a reference, and the sound they were made of where it stands beside them.

    Raises:
        LogError: there are no features.
    """
    found = features or forward.with_name("feats.npz")
    if not found.is_file():
        raise LogError(str(found), "no such file: name it by --features")
    sound = found.with_name("wav_fbank.npz")
    return found, sound if sound.is_file() else None
