"""Nguyen 2021: trained offline, used online by (k, s, N) without further training.

The paper's hypothesis, that LSTMs cope with short context better than a Transformer, is tested with
two encoders of similar size below the same decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.evaluation.bootstrap import Bootstrap
from earvoice.evaluation.quality import word_error_counts
from earvoice.models.checkpoint import read_parts, save_checkpoint
from earvoice.models.config import (
    FRAME_SHIFT_MS,
    DecoderConfig,
    EncoderConfig,
    FamilyConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.lstm import LstmConfig, LstmDecoder
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.systems.learning import DROPOUT, continued, drawn, learn, padded_texts, text_loss
from earvoice.systems.turns import SystemReport, features_of, normalised_features, read_turns
from earvoice.training.schedule import report
from earvoice.training.vocabulary import pieces_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from earvoice.systems.turns import Turn

ENCODERS: Mapping[str, FamilyConfig] = {
    "lstm": LstmConfig(d_model=192, channels=16, layers=2, cells=160),
    "transformer": EncoderConfig(
        architecture="transformer",
        d_model=192,
        heads=4,
        layers=4,
        ctc_layer=4,
        compression="none",
        subsampler=SubsamplerConfig(layers=2, channels=256),
    ),
}
DECODER = DecoderConfig(architecture="lstm", layers=2, heads=1, ffn_width=192, tied_embeddings=True)
UNITS: Mapping[str, tuple[Literal["bpe", "char"], int]] = {
    "characters": ("char", 4000),
    "BPE": ("bpe", 400),
}
SETTINGS = tuple(product((100, 200), (10, 20), (3, 2, 1)))
"""Section 2.2: k and s in frames of 10 ms, N in pieces."""
MAX_LENGTH_RATIO = 1.0
"""Most pieces of German text per encoder state."""
CTC_WEIGHT = 0.3
PEAK_RATE = 2e-3
ROOM_FRAMES = 6000
TURNS, HELD_OUT, STEPS = 400, 60, 250


Example = tuple[torch.Tensor, Sequence[int], Sequence[int]]
"""Normalised features, [T, 80]; the pieces of the transcript and of the translation."""


def nguyen_config(encoder: FamilyConfig, source_pieces: int, target_pieces: int) -> ModelConfig:
    return ModelConfig(
        "nguyen-2021",
        "1",
        "en",
        (TargetLanguage("de"),),
        source_pieces,
        target_pieces,
        encoder=encoder,
        decoder=DECODER,
        policy_defaults=PolicyDefaults("hold_n", attention_layer=1),
    )


def train(
    config: ModelConfig,
    examples: Sequence[Example],
    step_count: int,
    peak_rate: float = PEAK_RATE,
    seed: int = 1,
) -> tuple[SpeechTranslationModel, list[float]]:
    """Train with cross-entropy on the whole source, and with CTC.

    Returns:
        The network, and the loss of each step.
    """
    torch.manual_seed(seed)
    network = SpeechTranslationModel(config, dropout=DROPOUT)
    sizes = [len(features) for features, _, _ in examples]
    parts = drawn(examples, sizes, ROOM_FRAMES, np.random.default_rng(seed))
    return network, learn(network, parts, partial(_loss, network), step_count, peak_rate)


def _loss(network: SpeechTranslationModel, examples: Sequence[Example]) -> torch.Tensor:
    heard, transcripts, texts = zip(*examples, strict=True)
    padded = nn.utils.rnn.pad_sequence(list(heard), batch_first=True)
    frames = torch.tensor(list(map(len, heard)))
    tokens = padded_texts(texts)
    logits, encoded = network(padded, frames, tokens[:, :-1].clamp(min=0))
    ctc_loss = functional.ctc_loss(
        encoded.ctc_log_probs.transpose(0, 1),
        torch.tensor(list(chain(*transcripts))),
        encoded.ctc_lengths,
        torch.tensor(list(map(len, transcripts))),
        blank=network.config.blank,
        zero_infinity=True,
    )
    return text_loss(logits, tokens[:, 1:]) + CTC_WEIGHT * ctc_loss


class Schedule:
    """Decodes one source by (k, s, N); a prefix is encoded once for all settings."""

    def __init__(self, network: SpeechTranslationModel, features: torch.Tensor) -> None:
        decoder = network.decoder
        assert isinstance(decoder, LstmDecoder)  # noqa: S101 - the configuration says so
        self._encoder, self._decoder = network.encoder, decoder
        self._features = features
        self._states: dict[int, torch.Tensor] = {}

    @torch.inference_mode()
    def write(self, wait: int, stride: int, count: int) -> list[tuple[int, float]]:
        """Each piece, and the ms of audio heard by then (section 2.2, equations 1 to 4).

        At step t, the first g(t) = min{wait + (t - 1) stride, |X|} frames are encoded, and at most
        `count` pieces are written; an end of sentence before the source's end only ends the step.
        """
        whole, written = len(self._features), list[tuple[int, float]]()
        frames = min(wait, whole)
        while True:
            states = self._prefix(frames)
            room = int(MAX_LENGTH_RATIO * len(states)) - len(written)
            room = room if frames == whole else min(count, room)
            kept = [piece for piece, _ in written]
            new = islice(continued(self._decoder, states, kept), room)
            written += [(piece, float(frames * FRAME_SHIFT_MS)) for piece in new]
            if frames == whole:
                return written
            frames = min(frames + stride, whole)

    def offline(self) -> list[tuple[int, float]]:
        return self.write(len(self._features), 1, 1)

    def _prefix(self, frames: int) -> torch.Tensor:
        if frames not in self._states:
            self._states[frames] = self._encoder.encode(self._features[:frames]).states
        return self._states[frames]


def run(options: argparse.Namespace) -> None:
    """Both encoders and both units: training, the twelve settings, and the hypothesis."""
    parts = read_parts(options.model)
    source = parts.source_vocabulary
    turns = read_turns(options.data / "text", "train", TURNS)
    held_out = read_turns(options.data / "text", "dev", HELD_OUT)
    normalisation, features = normalised_features(turns)
    heard = [features_of(turn, normalisation) for turn in held_out]
    asked = [(turns[:HELD_OUT], features[:HELD_OUT], "learned"), (held_out, heard, "held out")]
    report(f"{len(turns)} turns, {len(held_out)} held out; of the learned the first {HELD_OUT}")
    shown = SystemReport("nguyen", "Nguyen 2021", turns, {which: told for told, _, which in asked})
    for unit, (kind, count) in UNITS.items():
        target = pieces_of([turn.german for turn in turns], count, kind)
        vocabulary = Vocabulary(target)
        errors: dict[tuple[str, str], list[np.ndarray]] = {}
        for name, encoder in ENCODERS.items():
            config = nguyen_config(encoder, len(source), len(vocabulary))
            examples = [
                (each, source.encode(transcript_of(turn)), vocabulary.encode(turn.german))
                for turn, each in zip(turns, features, strict=True)
            ]
            network, course = train(config, examples, STEPS)
            size = sum(parameter.numel() for parameter in network.encoder.parameters())
            report(f"{unit}, {name} of {size:,}: loss {course[0]:.2f} to {course[-1]:.2f}")
            for told, sounds, which in asked:
                schedules = [Schedule(network, each) for each in sounds]
                errors[name, which] = _rows(
                    shown, f"{unit}, {name}", schedules, vocabulary, told, which
                )
            save_checkpoint(
                options.work / f"nguyen-{name}-{kind}",
                config,
                network.state_dict(),
                normalisation=normalisation,
                source_model=source.model,
                target_model=target,
            )
        for told, _, which in asked:
            compared = (
                f"{unit}, {which}: what short context costs the Transformer minus what it costs "
                "the LSTM"
            )
            shown.difference(compared, _costs(errors, told, which), "WER")
    shown.save(options.work)


def transcript_of(turn: Turn) -> str:
    return transcript(spoken_form(turn.english))


def _rows(
    shown: SystemReport,
    trained: str,
    schedules: Sequence[Schedule],
    vocabulary: Vocabulary,
    turns: Sequence[Turn],
    which: str,
) -> list[np.ndarray]:
    """Report a row for each setting and offline; return the word errors of each turn, [turns]."""
    found = []
    for setting in (*SETTINGS, None):
        written = [
            schedule.offline() if setting is None else schedule.write(*setting)
            for schedule in schedules
        ]
        name = "offline" if setting is None else "k {}, s {}, N {}".format(*setting)
        shown.spoken_row(which, turns, written, vocabulary, trained=trained, written=name)
        texts = [vocabulary.decode(piece for piece, _ in each) for each in written]
        counts = word_error_counts(texts, [turn.german for turn in turns], "de")
        found.append(np.array([errors for errors, _ in counts]))
    return found


def _costs(
    errors: Mapping[tuple[str, str], Sequence[np.ndarray]], turns: Sequence[Turn], which: str
) -> np.ndarray:
    """WER that short context costs the Transformer more than the LSTM, in each draw."""
    cost = {
        name: np.mean(errors[name, which][:-1], 0) - errors[name, which][-1] for name in ENCODERS
    }
    german = [turn.german for turn in turns]
    words = np.array([count for _, count in word_error_counts(german, german, "de")])
    return 100 * Bootstrap(len(turns)).ratio(cost["transformer"] - cost["lstm"], words)
