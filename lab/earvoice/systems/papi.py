"""Papi 2022: trained for wait-k against trained offline, over the shipped model's encoder.

Five decoders learn from the same batches and differ only in the masks of their cross-attention;
each is decoded with every k. The encoder is loaded, and counts words, as in the encoder service.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from earvoice.corpus.states import mixed_precision
from earvoice.encoder.model import EncoderModel
from earvoice.models.checkpoint import load_checkpoint, read_parts
from earvoice.models.config import DecoderConfig, PolicyDefaults
from earvoice.models.decoding import CachedDecoder
from earvoice.models.speech_detector import load_speech_detector
from earvoice.models.vocabulary import Vocabulary
from earvoice.systems.caat import export, over_encoder_of
from earvoice.systems.learning import DROPOUT, drawn, learn, padded_texts, text_loss
from earvoice.systems.turns import SILENCE_MS, SystemReport, read_turns
from earvoice.systems.wait_k import hear, told, write
from earvoice.training.schedule import report
from earvoice.training.vocabulary import pieces_of
from earvoice.training.wait_k_mask import wait_k_mask

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from earvoice.models.config import ModelConfig
    from earvoice.models.translation import SightMask

TRAINED: Mapping[str, Sequence[int]] = {
    "offline": (),
    "k 3": (3,),
    "k 5": (5,),
    "k 7": (7,),
    "multi-path": (3, 5, 7),
}
"""The k of each training; if there are several, one is drawn for each batch (Elbayad 2020)."""
WRITTEN = (3, 5, 7, None)
STEP_MS = 320
DECODER = DecoderConfig(layers=3, heads=6, ffn_width=768, tied_embeddings=True)
PEAK_RATE = 1e-3
ROOM_STATES = 800
MOST_WORDS = 16
TURNS, HELD_OUT, PIECES, STEPS = 1000, 100, 600, 300


Example = tuple[torch.Tensor, Sequence[int], Sequence[int]]
"""The [S, d] states of the source; their CTC labels; the target pieces."""


def train(
    config: ModelConfig,
    examples: Sequence[Example],
    masks: Sequence[SightMask],
    step_count: int,
    seed: int = 1,
) -> tuple[CachedDecoder, list[float]]:
    """Train with cross-entropy, with one of the masks drawn for each batch, or with none.

    Returns:
        The decoder, and the loss of each step.
    """
    torch.manual_seed(seed)
    decoder, generator = CachedDecoder(config, DROPOUT), np.random.default_rng(seed)

    def loss_of(part: Sequence[Example]) -> torch.Tensor:
        mask = masks[int(generator.integers(len(masks)))] if masks else None
        return _loss(decoder, part, mask)

    sizes = [max(len(states), len(pieces)) for states, _, pieces in examples]
    parts = drawn(examples, sizes, ROOM_STATES, np.random.default_rng(seed))
    return decoder, learn(decoder, parts, loss_of, step_count, PEAK_RATE)


def _loss(
    decoder: CachedDecoder, examples: Sequence[Example], mask: SightMask | None
) -> torch.Tensor:
    heard, heard_labels, texts = zip(*examples, strict=True)
    memory = nn.utils.rnn.pad_sequence(list(heard), batch_first=True)
    lengths = torch.tensor(list(map(len, heard)))
    labels = nn.utils.rnn.pad_sequence(
        list(map(torch.tensor, heard_labels)), batch_first=True, padding_value=-1
    )
    tokens = padded_texts(texts)
    given = tokens[:, :-1].clamp(min=0)
    with mixed_precision():
        logits = decoder(given, memory, lengths, mask and mask(labels, given))
    return text_loss(logits, tokens[:, 1:])


def run(options: argparse.Namespace) -> None:
    """Run every training, decode with every k, and report offline training's gain at each."""
    parts = read_parts(options.model)
    checkpoint = load_checkpoint(options.model)
    network = EncoderModel(checkpoint, load_speech_detector())
    text = options.data / "text"
    turns = read_turns(text, "train", TURNS, MOST_WORDS)
    held_out = read_turns(text, "dev", HELD_OUT, MOST_WORDS)
    taught = [[turn.german for turn in turns]]
    if options.teacher:
        from earvoice.training.distillation import translations  # noqa: PLC0415 - has an extra

        english = [turn.english for turn in turns]
        taught.append(translations(options.teacher, english, options.teacher_languages))
    target = pieces_of(chain(*taught), PIECES)
    vocabulary = Vocabulary(target)
    policy = PolicyDefaults("wait_k", attention_layer=2, segment_ms=STEP_MS)
    config = over_encoder_of(parts.config, "papi-2022", len(vocabulary), DECODER, policy)
    examples = []
    for turn, *texts in zip(turns, *taught, strict=True):
        ((_, states, labels),) = hear(network, turn.recording, turn.duration_ms + 2 * SILENCE_MS)
        examples += [(states, labels, vocabulary.encode(text)) for text in texts]
    heard = [hear(network, turn.recording, STEP_MS) for turn in held_out]
    minutes = sum(turn.duration_ms for turn in turns) / 60_000
    report(f"{len(turns)} turns, {minutes:.1f} min of speech; {len(held_out)} held out")
    shown = SystemReport("papi", "Papi 2022", turns, {"held out": held_out})
    draws: dict[tuple[str, int | None], np.ndarray] = {}
    for name, several in TRAINED.items():
        masks = [wait_k_mask(k, parts.source_vocabulary, vocabulary) for k in several]
        decoder, course = train(config, examples, masks, STEPS)
        report(f"trained {name}: loss {course[0]:.2f} to {fmean(course[-20:]):.2f}")
        for k in WRITTEN:
            pieces = [
                [
                    (token.token_id, steps[index][0].duration_ms - SILENCE_MS)
                    for token, index in write(decoder, vocabulary, steps, k)
                ]
                for steps in heard
            ]
            draws[name, k] = shown.spoken_row(
                "held out", held_out, pieces, vocabulary, trained=name, written=told(k)
            )
        to = options.work / f"papi-{name.replace(' ', '-')}"
        export(parts, config, decoder, target, to)
    for (name, k), others in draws.items():
        if name != "offline":
            compared = f"offline minus {name}, written with {told(k)}"
            shown.difference(compared, draws["offline", k] - others)
    shown.save(options.work)
