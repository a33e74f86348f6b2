"""Teach the encoder to hear behind noise, voices and telephones what it hears without them.

The states of the disturbed sound are to be those that the pretrained encoder gives of the sound
undisturbed, and the decoder for English is to foretell from them what it foretells from those.
So whatever reads the states need not be taught again.
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from earvoice.corpus.recipe import SOURCE_LANGUAGE
from earvoice.corpus.sound import Conditions, music, read_sound, with_noise, worsened
from earvoice.corpus.states import features_of, pretrained_encoder
from earvoice.models.vocabulary import EOS, PAD, Vocabulary
from earvoice.runtime.files import atomic_write
from earvoice.training.data import D_MODEL, JOIN, batches
from earvoice.training.schedule import optimiser, rate, report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from earvoice.corpus.sound import Sound
    from earvoice.models.transformer import TransformerDecoder
    from earvoice.models.whisper import WhisperEncoder
    from earvoice.training.data import Heard

ENCODER_FILE = "encoder.pt"
ROOM_STATES = 3000
PEAK_RATE = 2e-4
AVERAGE = 0.998
"""Share that the average of all weights keeps at each step."""
FORETELLING_WEIGHT = 0.1
"""Of the decoder's divergence, in nats a piece, beside the share of the states' variance."""
DISTURBED = Conditions(telephone=0.25, noise=0.6, babble=0.2, snr_db=(0.0, 25.0), pace=0.0)
MUSIC_SHARE, MUSIC_SNR_DB = 0.1, (3.0, 20.0)
BABBLING_CLIPS = 60
SAVE_EVERY_S = 120


class EncoderTrainer:
    """Goes on from its last state.

    Args:
        clips: undisturbed, with the pretrained encoder's states and English.
        paths: each clip's recording, by key.
        decoder: the one that is exported; stays as it is.
    """

    def __init__(
        self,
        clips: Sequence[Heard],
        paths: Mapping[str, Path],
        decoder: TransformerDecoder,
        target: Vocabulary,
        generator: np.random.Generator,
    ) -> None:
        self.clips, self.paths, self.decoder = (
            clips,
            paths,
            decoder.requires_grad_(requires_grad=False),
        )
        tag = target.id_of(f"<{SOURCE_LANGUAGE}>")
        self.texts = [[EOS, tag, *target.encode(clip.english or ""), EOS] for clip in clips]
        self.stack = decoder.stack_of([EOS, tag])
        self.encoder = copy.deepcopy(pretrained_encoder()).train()
        self.encoder.ctc.requires_grad_(requires_grad=False)
        self.named = {n: p for n, p in self.encoder.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.named.items()}
        self.optimiser = optimiser(self.named.values(), PEAK_RATE)
        self.variance = float(np.mean([clip.load().var(0).mean() for clip in clips[:100]]))
        drawn = generator.permutation(len(clips))[:BABBLING_CLIPS]
        self.voices = [read_sound(paths[clips[i].key]) for i in drawn]
        self.step, self.used_s = 0, 0.0

    def train(self, path: Path, seconds: float, seed: int) -> None:
        """Until so many seconds of processor are used in all; the state is kept in a file."""
        if path.exists():
            self._load(path)
        generator = np.random.default_rng((seed, self.step))
        began, saved_s = time.process_time() - self.used_s, self.used_s
        means = np.zeros(2)
        for part in batches([clip.states for clip in self.clips], ROOM_STATES, generator):
            self.used_s = time.process_time() - began
            if self.used_s > seconds:
                break
            losses = self.learn(part, generator, self.used_s / seconds)
            means = 0.98 * means + 0.02 * np.array(losses) if means.any() else np.array(losses)
            if self.step % 50 == 0:
                report(
                    f"{self.step} {self.used_s:.0f} s, of the variance {means[0]:.3f}, "
                    f"nats a piece {means[1]:.3f}"
                )
            if self.used_s - saved_s > SAVE_EVERY_S:
                self._save(path)
                saved_s = self.used_s
        self._save(path)

    def learn(
        self, part: Sequence[int], generator: np.random.Generator, share: float
    ) -> tuple[float, float]:
        """One step: what is missing of the states, and of what the decoder foretells."""
        sounds = [read_sound(self.paths[self.clips[i].key]) for i in part]
        features = [features_of(self.disturbed(sound, generator)) for sound in sounds]
        wanted = [self.clips[i].load().view(-1, D_MODEL) for i in part]
        with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
            states, counts = self.encoder.hear(
                nn.utils.rnn.pad_sequence(features, batch_first=True),
                torch.tensor(list(map(len, features))),
            )
            clean = nn.utils.rnn.pad_sequence(wanted, batch_first=True)
            valid = torch.arange(states.shape[1]) < counts[:, None]
            frames = torch.tensor([self.clips[i].frames for i in part])
            texts = nn.utils.rnn.pad_sequence(
                [torch.tensor(self.texts[i]) for i in part], batch_first=True, padding_value=PAD
            )
            with torch.no_grad():
                told = self.foretold(clean, frames, texts)
            hidden = self.foretold(states, frames, texts)
            missing = (states.float() - clean)[valid].square().mean() / self.variance
            divergence = functional.kl_div(
                self.decoder.logits(hidden).log_softmax(-1),
                self.decoder.logits(told).log_softmax(-1),
                reduction="batchmean",
                log_target=True,
            )
        self.optimiser.zero_grad()
        torch.autograd.backward(missing + FORETELLING_WEIGHT * divergence)
        nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        for group in self.optimiser.param_groups:
            group["lr"] = PEAK_RATE * rate(self.step, share)
        self.optimiser.step()
        self.step += 1
        kept = min(AVERAGE, self.step / (self.step + 10))
        torch._foreach_lerp_(
            list(self.average.values()), [p.detach() for p in self.named.values()], 1 - kept
        )
        return missing.item(), divergence.item()

    def disturbed(self, sound: Sound, generator: np.random.Generator) -> Sound:
        if generator.random() < MUSIC_SHARE:
            sound = with_noise(
                sound, music(len(sound), generator), generator.uniform(*MUSIC_SNR_DB)
            )
        return worsened(sound, self.voices, DISTURBED, generator)

    def foretold(
        self, states: torch.Tensor, frames: torch.Tensor, texts: torch.Tensor
    ) -> torch.Tensor:
        """[pieces, d] after the last LayerNorm: one row for each piece of the texts, and each end.

        Args:
            states: [B, S, d] of 20 ms, those of the silence after the sound among them.
            frames: [B] int64 of joined states of the sound.
            texts: [B, L] int64.
        """
        memory = states.view(len(states), -1, JOIN, D_MODEL).mean(2)[:, : int(frames.max())]
        hidden = self.decoder.hidden(texts[:, :-1], memory, frames)
        return hidden[:, 1:][texts[:, 2:] != PAD]

    def _save(self, path: Path) -> None:
        state = {
            "encoder": {name: p.detach() for name, p in self.named.items()},
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "used": self.used_s,
        }
        with atomic_write(path) as partial:
            torch.save(state, partial)

    def _load(self, path: Path) -> None:
        kept = torch.load(path, weights_only=True)
        for name, parameter in self.named.items():
            parameter.detach().copy_(kept["encoder"][name])
            self.average[name].copy_(kept["average"][name])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.step, self.used_s = kept["step"], kept["used"]


def taught_encoder(run: Path) -> WhisperEncoder:
    """The pretrained encoder, or what the run has made of it."""
    encoder = copy.deepcopy(pretrained_encoder())
    if (run / ENCODER_FILE).exists():
        kept = torch.load(run / ENCODER_FILE, weights_only=True)["average"]
        encoder.load_state_dict(kept, strict=False)
    return encoder
