"""Train the encoder on accents, telephone lines and noise, through a frozen decoder."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from earvoice.corpus.recipe import SOURCE_LANGUAGE
from earvoice.corpus.states import features_of, mixed_precision
from earvoice.models.vocabulary import PAD, Vocabulary
from earvoice.training.data import Sounds, batches
from earvoice.training.decoder import read_and_wanted
from earvoice.training.schedule import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from earvoice.corpus.sound import Sound
    from earvoice.models.ctc import Encoded
    from earvoice.models.transformer import TransformerDecoder
    from earvoice.models.whisper import WhisperEncoder

MOST_TOKENS = 110


@dataclass(frozen=True)
class EncoderRecipe:
    """Settings of the training."""

    peak_rate: float = 1e-4
    ctc_peak_rate: float = 3e-4
    """For the CTC branch."""
    room_frames: int = 6000
    """Feature frames of 10 ms in a step, padding included."""
    foretold_share: float = 0.5
    """Share of the recordings' loss whose targets are, piece by piece, the decoder's distributions
    for the undegraded recording and the pretrained encoder (Hinton 2015)."""
    ctc_share: float = 0.3
    """Weight of a CTC label's loss relative to a piece's."""
    average: float = 0.996
    """Decay of the moving average of the weights, per step."""


@dataclass(frozen=True)
class Utterance:
    """A clip in a step: its sound this time, and the text to be written."""

    index: int
    sound: Sound
    text: str


class EncoderTrainer(Trainer["Sequence[Utterance]"]):
    """Trains encoder and CTC branch by the losses of a decoder and of CTC.

    Args:
        encoder: the pretrained one, with its branch.
        decoder: for English; frozen.
        sounds: of recordings, and of clips whose shards keep the sound.
    """

    losses: ClassVar[tuple[str, ...]] = ("pieces", "CTC")
    part = "encoder"

    def __init__(
        self,
        encoder: WhisperEncoder,
        decoder: TransformerDecoder,
        sounds: Sounds,
        source: Vocabulary,
        target: Vocabulary,
        recipe: EncoderRecipe,
    ) -> None:
        self.pretrained = copy.deepcopy(encoder).eval().requires_grad_(requires_grad=False)
        self.encoder = encoder.train()
        self.decoder = decoder.eval().requires_grad_(requires_grad=False)
        self.source, self.target, self.recipe = source, target, recipe
        self.sounds, self.clips = sounds, sounds.clips
        self.labels = [source.encode(clip.said or "") for clip in self.clips]
        branch = list(encoder.ctc.parameters())
        known = {id(parameter) for parameter in branch}
        own = [p for p in encoder.parameters() if id(p) not in known]
        peaks = ((own, recipe.peak_rate), (branch, recipe.ctc_peak_rate))
        super().__init__(encoder, peaks, recipe.average)
        self._chosen = [
            index
            for index, clip in enumerate(self.clips)
            if clip.english is not None and len(target.encode(clip.english)) <= MOST_TOKENS
        ]
        self._foretold: dict[int, torch.Tensor] = {}

    def steps(self, generator: np.random.Generator) -> Iterator[Sequence[Utterance]]:
        lengths = [2 * self.clips[index].states for index in self._chosen]
        for part in batches(lengths, self.recipe.room_frames, generator):
            yield [self._utterance(self._chosen[place], generator) for place in part]

    def backward(self, drawn: Sequence[Utterance]) -> np.ndarray:
        # On a CPU, the backward pass of fused attention is slower than that of its parts.
        with sdpa_kernel(SDPBackend.MATH):
            pieces, ctc = self.losses_of(drawn)
            torch.autograd.backward(pieces + self.recipe.ctc_share * ctc)
        return np.array([pieces.item(), ctc.item()])

    def losses_of(self, utterances: Sequence[Utterance]) -> tuple[torch.Tensor, torch.Tensor]:
        """The decoder's mean loss per piece or end, and the CTC loss per label."""
        heard = _encoded(self.encoder, [u.sound for u in utterances])
        tokens, wanted = self._tokens(utterances)
        with mixed_precision():
            logits = self.decoder(tokens, heard.states, heard.lengths)
        pieces = functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="none"
        ).view(wanted.shape)
        told = self._told(utterances)
        for row, own in told.items():
            count = len(own)
            soft = functional.cross_entropy(logits[row, 1 : count + 1], own, reduction="none")
            share = self.recipe.foretold_share
            pieces[row, 1 : count + 1] = torch.lerp(pieces[row, 1 : count + 1], soft, share)
        labels = [self.labels[u.index] for u in utterances]
        fits = [
            row
            for row, own in enumerate(labels)
            if self.clips[utterances[row].index].said is not None
            and len(own) < int(heard.ctc_lengths[row])
        ]
        ctc = functional.ctc_loss(
            heard.ctc_log_probs[fits].float().transpose(0, 1),
            torch.tensor([label for row in fits for label in labels[row]], dtype=torch.long),
            heard.ctc_lengths[fits],
            torch.tensor([len(labels[row]) for row in fits], dtype=torch.long),
            blank=len(self.source),
            zero_infinity=True,
        )
        return pieces.sum() / (wanted != PAD).sum(), ctc

    def _utterance(self, index: int, generator: np.random.Generator) -> Utterance:
        sound = self.sounds.drawn(index, generator)
        return Utterance(index, sound, self.clips[index].english or "")

    def _tokens(self, utterances: Sequence[Utterance]) -> tuple[torch.Tensor, torch.Tensor]:
        tag = self.target.id_of(f"<{SOURCE_LANGUAGE}>")
        return read_and_wanted([(tag, self.target.encode(u.text)) for u in utterances])

    @torch.no_grad()
    def _told(self, utterances: Sequence[Utterance]) -> dict[int, torch.Tensor]:
        """The teacher's distributions, [pieces and end, V], by the row of each recording."""
        rows = [row for row, u in enumerate(utterances) if self.sounds.is_recording(u.index)]
        new = [utterances[row] for row in rows if utterances[row].index not in self._foretold]
        if new:
            heard = _encoded(self.pretrained, [self.sounds.undisturbed(u.index) for u in new])
            tokens, wanted = self._tokens(new)
            with mixed_precision():
                hidden = self.decoder.hidden(tokens, heard.states, heard.lengths)
            for u, own, following in zip(new, hidden, wanted, strict=True):
                self._foretold[u.index] = own[following != PAD].half()
        told = {}
        for row in rows:
            with mixed_precision():
                logits = self.decoder.logits(self._foretold[utterances[row].index].float())
            told[row] = logits.float().softmax(-1)
        return told


def _encoded(encoder: WhisperEncoder, sounds: Sequence[Sound]) -> Encoded:
    features = [features_of(sound) for sound in sounds]
    lengths = torch.tensor([len(each) for each in features])
    with mixed_precision():
        heard: Encoded = encoder(nn.utils.rnn.pad_sequence(features, batch_first=True), lengths)
    return heard
