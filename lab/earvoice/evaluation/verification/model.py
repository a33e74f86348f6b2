"""The tensors that a reference names, computed by our networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from earvoice.evaluation.log import LogError
from earvoice.evaluation.verification.tensors import (
    BATCH_PREFIX,
    Reference,
    TensorDifference,
    largest_difference,
    tolerance_of,
)
from earvoice.models.assembly import CheckpointParts, build_network
from earvoice.models.ctc import Encoded
from earvoice.models.encoder import PaperEncoder
from earvoice.models.relative_attention import RelativeAttention
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS

Tensors = dict[str, np.ndarray]


class ForwardPass:
    """Computes what a reference holds, in its names and shapes.

    Args:
        watched: whether tensors inside the encoder are taken as well. Layers that are prepared
            for inference are fused, and have no such tensors.
        shifts_by_batch: whether the reference shifted positions by the length of the padded batch
            (its option `batch_unsafe_relative_shift`), so that company changes a short utterance.
    """

    def __init__(
        self, network: SpeechTranslationModel, *, watched: bool, shifts_by_batch: bool = False
    ) -> None:
        self._network = network
        self._watched = watched
        if shifts_by_batch:
            for module in network.encoder.modules():
                if isinstance(module, RelativeAttention):
                    module.register_forward_pre_hook(_without_lengths)

    @torch.inference_mode()
    def utterance(self, features: np.ndarray, tokens: Sequence[int] | None) -> Tensors:
        """All tensors of one utterance.

        Args:
            features: [T, mel] float32.
            tokens: the reference's hypothesis, start token first, which the decoder is forced to;
                None leaves the decoder out.
        """
        encoder = self._network.encoder
        with _watching(self._network.papers_encoder, active=self._watched) as taken:
            batch = encoder(torch.from_numpy(features)[None])
        found = {**taken, **_encoded(batch)}
        if tokens is not None:
            found |= self._decoded(batch.states[0], tokens)
        return {name: tensor.numpy() for name, tensor in found.items()}

    @torch.inference_mode()
    def batch(self, features: Sequence[np.ndarray]) -> Tensors:
        """The encoder's tensors of utterances that are padded in one batch."""
        padded = nn.utils.rnn.pad_sequence(
            [torch.from_numpy(item) for item in features], batch_first=True
        )
        lengths = torch.tensor([len(item) for item in features])
        with _watching(self._network.papers_encoder, active=self._watched) as taken:
            batch = self._network.encoder(padded, lengths)
        found = {**taken, **_encoded(batch)}
        return {name: tensor.numpy() for name, tensor in found.items()}

    def _decoded(self, states: torch.Tensor, tokens: Sequence[int]) -> dict[str, torch.Tensor]:
        decoder, shape = self._network.transformer_decoder, self._network.config.decoder
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
        return found | self._searched(states, len(tokens))

    def _searched(self, states: torch.Tensor, count: int) -> dict[str, torch.Tensor]:
        """As many tokens as the reference has, each the most probable."""
        decoder = self._network.transformer_decoder
        cache = decoder.open_cache(states)
        tokens, rows = [EOS], []
        while len(tokens) < count:
            logits, _ = decoder.step(tokens[-1:], [cache], [1])
            rows.append(logits[0].log_softmax(-1))
            tokens.append(int(logits[0].argmax()))
        return {"greedy_tokens": torch.tensor(tokens), "greedy_logprobs": torch.stack(rows)}


@contextmanager
def _watching(encoder: PaperEncoder, *, active: bool) -> Iterator[dict[str, torch.Tensor]]:
    """Take the output of the subsampler and of every encoder layer meanwhile, as [T, B, C].

    The CTC layer's is the one before compression.
    """
    taken: dict[str, torch.Tensor] = {}

    def take_subsample(_module: object, _inputs: object, output: tuple[torch.Tensor]) -> None:
        # The reference's is the one before the scaling by √d.
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
    """The inputs of an attention but the lengths: padding is masked, not told to the shift."""
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
    """[T, B] bool: the steps of a tensor that are no padding; None where all are compared."""
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
    """
    for name, utterances in reference.items():
        for way in (PLAIN, SERVED):
            network = _network(parts, name)
            if way == SERVED:
                network.prepare_inference(torch.float32)
            forward = ForwardPass(network, watched=way == PLAIN, shifts_by_batch=shifts_by_batch)
            for utterance, expected in utterances.items():
                if way == SERVED and utterance.startswith(BATCH_PREFIX):
                    continue  # The services pad nothing on a CPU.
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
    """The features of a reference, and the sound they were made of where it stands beside them."""
    found = features or forward.with_name("feats.npz")
    if not found.is_file():
        raise LogError(str(found), "no such file: name it by --features")
    sound = found.with_name("wav_fbank.npz")
    return found, sound if sound.is_file() else None
