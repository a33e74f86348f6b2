"""Computes, with our code, the tensors that a reference names and the features of its sound."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from earvoice.evaluation.log import LogError
from earvoice.evaluation.verification.tensors import (
    BATCH_PREFIX,
    FEATURE_TOLERANCE,
    OTHER_SUMS_TOLERANCE,
    Reference,
    TensorDifference,
    largest_difference,
    read_arrays,
    tolerance_of,
)
from earvoice.models.assembly import CheckpointParts, build_network
from earvoice.models.checkpoint import read_parts
from earvoice.models.ctc import Encoded
from earvoice.models.encoder import PaperEncoder
from earvoice.models.frontend import FeatureNormalisation, Filterbank
from earvoice.models.relative_attention import RelativeAttention
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS

Tensors = dict[str, np.ndarray]


@torch.inference_mode()
def forward(
    network: SpeechTranslationModel,
    features: Sequence[np.ndarray],
    tokens: Sequence[int] | None = None,
    *,
    watched: bool,
) -> Tensors:
    """Compute a reference's tensors, with its names and shapes.

    Args:
        features: [T, mel] float32 of one utterance, or of several that are padded in one batch.
        tokens: the reference's hypothesis, start token first, which the decoder is forced to; None
            leaves the decoder out.
        watched: whether to include tensors inside the encoder. Layers that are prepared for
            inference are fused, and have no such tensors.
    """
    padded = nn.utils.rnn.pad_sequence(
        [torch.from_numpy(item) for item in features], batch_first=True
    )
    lengths = torch.tensor([len(item) for item in features]) if len(features) > 1 else None
    with _watching(network.papers_encoder, active=watched) as taken:
        batch = network.encoder(padded, lengths)
    found = {**taken, **_encoded(batch)}
    if tokens is not None:
        found |= _decoded(network, batch.states[0], tokens)
    return {name: tensor.numpy() for name, tensor in found.items()}


def _decoded(
    network: SpeechTranslationModel, states: torch.Tensor, tokens: Sequence[int]
) -> dict[str, torch.Tensor]:
    decoder, shape = network.transformer_decoder, network.config.decoder
    found = {}
    for layer in range(1, shape.layers + 1):
        rows = []
        for heads in ((), *((head,) for head in range(1, shape.heads + 1))):
            cache = decoder.open_cache(states, tokens)
            logits, attention = decoder.prefill(list(tokens[:-1]), cache, layer, heads)
            rows.append(attention)
        found[f"cross_attn_mean_layer{layer - 1}"] = rows[0]
        found[f"cross_attn_heads_layer{layer - 1}"] = torch.stack(rows[1:])
    found["tf_logits"] = logits
    # Greedy, with as many tokens as the reference has.
    cache, searched, log_probs = decoder.open_cache(states), [EOS], []
    while len(searched) < len(tokens):
        logits, _ = decoder.step(searched[-1:], [cache], [1])
        log_probs.append(logits[0].log_softmax(-1))
        searched.append(int(logits[0].argmax()))
    found["greedy_tokens"] = torch.tensor(searched)
    found["greedy_logprobs"] = torch.stack(log_probs)
    return found


@contextmanager
def _watching(encoder: PaperEncoder, *, active: bool) -> Iterator[dict[str, torch.Tensor]]:
    """Capture the outputs of the subsampler and of every encoder layer, as [T, B, C].

    The CTC layer's output is taken before compression.
    """
    taken: dict[str, torch.Tensor] = {}

    def take_subsample(_module: object, _inputs: object, output: tuple[torch.Tensor]) -> None:
        # The reference has it before the scaling by √d.
        taken["subsample_TBC"] = output[0].transpose(0, 1) / encoder.subsample.scale

    def take(index: int, _module: object, _inputs: object, output: torch.Tensor) -> None:
        taken[f"enc_layer{index}_TBC"] = output.transpose(0, 1)

    with ExitStack() as hooks:
        if active:
            hooks.enter_context(encoder.subsample.register_forward_hook(take_subsample))
            for index, layer in enumerate(encoder.layers):
                hooks.enter_context(layer.register_forward_hook(partial(take, index)))
        yield taken


def _without_lengths(_module: object, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """An attention's inputs without the lengths: the shift ignores padding, but it is masked."""
    hidden, rows, _lengths, *rest = inputs
    return hidden, rows, None, *rest


def _encoded(batch: Encoded) -> dict[str, torch.Tensor]:
    states, lengths = batch.states, batch.lengths
    found = {
        "encoder_out_TBC": states.transpose(0, 1),
        "ctc_logprobs_TBV": batch.ctc_log_probs.transpose(0, 1),
        "ctc_lengths": batch.ctc_lengths,
        "padding_mask": torch.arange(states.shape[1]) >= lengths[:, None],
    }
    for index, length in enumerate(batch.ctc_lengths.tolist()):
        labels = batch.ctc_log_probs[index, :length].argmax(-1)
        runs = torch.unique_consecutive(labels, return_counts=True)
        found[f"ctc_groups_b{index}"] = torch.stack(runs, dim=1)
    return found


def valid_steps(name: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """[T, B] bool: the steps of a tensor that are not padding; None if all are compared."""
    if not name.endswith(("_TBC", "_TBV")):
        return None
    steps = np.arange(tensors[name].shape[0])[:, None]
    frames: np.ndarray = steps < tensors["ctc_lengths"]
    if len(frames) == tensors["padding_mask"].shape[1]:
        return np.asarray(~tensors["padding_mask"].T & frames)
    return frames


PLAIN = "layer by layer"
SERVED = "as served"


def verify_model(
    parts: CheckpointParts,
    reference: Reference,
    features: Mapping[str, np.ndarray],
    *,
    shifts_by_batch: bool,
) -> Iterator[TensorDifference]:
    """Compare every tensor of the reference, computed layer by layer and as the services do.

    Args:
        features: [T, mel] float32 by utterance, normalised.
        shifts_by_batch: whether the reference shifted positions by the length of the padded batch
            (its option `batch_unsafe_relative_shift`), so that the batch changes short utterances.
    """
    for name, utterances in reference.items():
        for way in (PLAIN, SERVED):
            network = _network(parts, name)
            if way == SERVED:
                network.prepare_inference(torch.float32)
            if shifts_by_batch:
                for module in network.encoder.modules():
                    if isinstance(module, RelativeAttention):
                        module.register_forward_pre_hook(_without_lengths)
            for utterance, expected in utterances.items():
                together = utterance.removeprefix(BATCH_PREFIX)
                if together == utterance:
                    heard = [_features_of(utterance, features)]
                elif way == PLAIN:
                    heard = [_features_of(one, features) for one in [*features][: int(together)]]
                else:
                    continue  # On a CPU the services do not pad.
                tokens = expected.get("greedy_tokens")
                told = None if tokens is None else tokens.tolist()
                found = forward(network, heard, told, watched=way == PLAIN)
                place = f"{name}/{utterance}, {way}"
                yield from _compared(found, expected, place, complete=way == PLAIN)


def _network(parts: CheckpointParts, strategy: str) -> SpeechTranslationModel:
    values = {**parts.config.encoder.to_dict(), "compression": strategy}
    encoder = type(parts.config.encoder).from_dict(values)
    return build_network(dataclasses.replace(parts.config, encoder=encoder), parts.tensors)


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
    """The features of a reference, and the sound that they were made of if it lies beside them."""
    found = features or forward.with_name("feats.npz")
    if not found.is_file():
        raise LogError(str(found), "no such file: name it by --features")
    sound = found.with_name("wav_fbank.npz")
    return found, sound if sound.is_file() else None


REFERENCE_PROCESSOR = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
"""Makes the FFT library round as it does on the reference's machine."""
RAW_SUFFIX = "_fbank_raw"


def verify_features(
    sound: Path, checkpoint: Path, features: Mapping[str, np.ndarray]
) -> Iterator[TensorDifference]:
    """Compare raw and normalised features of every utterance whose sound is available.

    The rounding order of a float32 Fourier transform depends on the processor: between two kinds,
    bins without sound differ by 1e-3. So ours is computed in a separate process, in the order of
    the reference's machine. What remains are differences in our code and, without AVX-512, the
    order in which a frame's mean is summed.

    Args:
        sound: `.npz` of int16 samples by utterance, each with its raw filterbank.
        checkpoint: its statistics are used to normalise if there are none beside the sound.
        features: [T, mel] float32 by utterance, normalised.
    """
    reference = read_arrays(sound)
    computed = _computed_apart(sound, checkpoint)
    sums_alike = torch.backends.cpu.get_cpu_capability() == "AVX512"
    tolerance = FEATURE_TOLERANCE if sums_alike else OTHER_SUMS_TOLERANCE
    for utterance in (name for name in features if name in reference):
        pairs = {
            "features": (computed[utterance], features[utterance]),
            "features_raw": (computed[utterance + RAW_SUFFIX], reference[utterance + RAW_SUFFIX]),
        }
        for name, (ours, theirs) in pairs.items():
            largest = largest_difference(ours, theirs)
            yield TensorDifference(name, utterance, largest, tolerance)


def _computed_apart(sound: Path, checkpoint: Path) -> dict[str, np.ndarray]:
    with TemporaryDirectory() as folder:
        output = Path(folder) / "features.npz"
        module = "earvoice.evaluation.verification.model"
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
    """The statistics beside the sound, if any; they may be of another model."""
    if not {"gcmvn_mean", "gcmvn_std"} <= arrays.keys():
        return None
    mean, deviation = arrays["gcmvn_mean"], arrays["gcmvn_std"]
    return FeatureNormalisation(torch.from_numpy(mean), torch.from_numpy(deviation))


if __name__ == "__main__":
    sys.exit(main())
