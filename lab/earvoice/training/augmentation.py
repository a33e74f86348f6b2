"""Variation of log-mel features: speakers, rooms, channels and noise that were never recorded.

Everything works on Kaldi log-mel features before normalisation, [frames, 80] float32, in nats
of power at int16 scale; sounds are mixed by adding power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from earvoice.training.telephone_channel import telephone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from earvoice.training.recipe import AugmentationRecipe

    Features = NDArray[np.float32]

MEL_BINS = 80
SILENCE_NATS = -15.9
"""Kaldi's log-mel of digital silence."""
_NATS_PER_DB = float(np.log(10.0) / 10.0)
_LOWEST_MEL, _HIGHEST_MEL = 1127.0 * np.log1p(20.0 / 700.0), 1127.0 * np.log1p(8000.0 / 700.0)
_CENTRES_MEL = np.linspace(_LOWEST_MEL, _HIGHEST_MEL, MEL_BINS + 2)[1:-1]
_CENTRES_HZ = 700.0 * np.expm1(_CENTRES_MEL / 1127.0)


def warp_vocal_tract(features: Features, factor: float) -> Features:
    """Move every resonance to `factor` times its frequency, by interpolation between mel bins."""
    sources_mel = 1127.0 * np.log1p(_CENTRES_HZ / factor / 700.0)
    place = np.interp(sources_mel, _CENTRES_MEL, np.arange(MEL_BINS, dtype=np.float64))
    left = np.minimum(place.astype(np.int64), MEL_BINS - 2)
    share = (place - left).astype(np.float32)
    mixed = features[:, left] * (1 - share) + features[:, left + 1] * share
    return np.asarray(mixed, dtype=np.float32)


def change_tempo(features: Features, factor: float) -> Features:
    """Speak `factor` times faster at the same pitch, by interpolation between frames."""
    count = max(1, round(len(features) / factor))
    place = np.linspace(0, len(features) - 1, count)
    left = np.minimum(place.astype(np.int64), max(len(features) - 2, 0))
    right = np.minimum(left + 1, len(features) - 1)
    share = (place - left).astype(np.float32)[:, None]
    return np.asarray(features[left] * (1 - share) + features[right] * share, dtype=np.float32)


def equalise(features: Features, strength_nats: float, generator: np.random.Generator) -> Features:
    """Add a smooth random curve over frequency: microphones, tilt, distance."""
    axis = np.linspace(0.0, np.pi, MEL_BINS)
    curve = np.zeros(MEL_BINS)
    for wave in range(1, 5):
        curve += generator.normal(0.0, strength_nats / wave**0.5) * np.cos(wave * axis) / 2
    return features + curve.astype(np.float32)


def reverberate(power: Features, generator: np.random.Generator) -> Features:
    """Add an exponential tail to every frame's power (a decay of 60 dB in 0.15 to 0.7 s)."""
    decay = 10.0 ** (-6.0 / (generator.uniform(0.15, 0.7) * 100.0))
    level = 10.0 ** generator.uniform(-1.6, -0.5)
    heard = power.copy()
    for delay in range(2, min(24, len(power))):
        heard[delay:] += (level * decay**delay) * power[:-delay]
    return heard


def mask(
    features: Features, recipe: AugmentationRecipe, generator: np.random.Generator
) -> Features:
    """Set bands and stretches of normalised features to their mean (SpecAugment, Park 2019)."""
    masked, mean = features.copy(), features.mean()
    for _ in range(recipe.frequency_masks):
        width = generator.integers(0, recipe.frequency_mask_bins + 1)
        start = generator.integers(0, MEL_BINS - width + 1)
        masked[:, start : start + width] = mean
    # A long input gets more stretches than a short one, in proportion.
    for _ in range(recipe.time_masks * max(1, len(features) // 400)):
        widest = min(recipe.time_mask_frames, len(features) // 8)
        width = generator.integers(0, widest + 1)
        start = generator.integers(0, len(features) - width + 1)
        masked[start : start + width] = mean
    return masked


class NoiseBank:
    """Noise to mix in: Gaussian noise with any spectrum, and babble of real voices."""

    def __init__(self, white: Features, voices: list[NDArray[np.float16]]) -> None:
        """Keep the material.

        Args:
            white: log-mel of Gaussian noise with each bin's mean taken off, [frames, 80].
            voices: log-mel of real voices, each [frames, 80].
        """
        self.white = white
        self.voices = voices

    def steady(self, frames: int, generator: np.random.Generator) -> Features:
        """Return noise with a random spectrum around 0 nats, [frames, 80]."""
        start = generator.integers(0, len(self.white))
        taken = np.take(self.white, np.arange(start, start + frames), axis=0, mode="wrap")
        tilt = generator.uniform(-3.0, 1.0) * np.linspace(-1.0, 1.0, MEL_BINS, dtype=np.float32)
        return equalise(taken + tilt, 1.5, generator)

    def babble(self, frames: int, generator: np.random.Generator) -> Features:
        """Return 3 to 6 real voices at once, [frames, 80], with a mean near 0 nats."""
        power = np.zeros((frames, MEL_BINS), np.float32)
        for _ in range(generator.integers(3, 7)):
            voice = self.voices[generator.integers(len(self.voices))]
            start = generator.integers(0, len(voice))
            rows = np.arange(start, start + frames)
            power += np.exp(np.take(voice, rows, axis=0, mode="wrap").astype(np.float32))
        mixed = np.log(power + 1.0)
        return np.asarray(mixed - mixed.mean(), dtype=np.float32)


def vary_speaker(
    features: Features, recipe: AugmentationRecipe, generator: np.random.Generator
) -> Features:
    """Vary vocal tract and tempo of one clip."""
    if generator.random() < recipe.warp_chance:
        features = warp_vocal_tract(features, generator.uniform(*recipe.warp_range))
    if generator.random() < recipe.tempo_chance:
        features = change_tempo(features, generator.uniform(*recipe.tempo_range))
    return features


def vary_channel(
    features: Features, bank: NoiseBank, recipe: AugmentationRecipe, generator: np.random.Generator
) -> Features:
    """Vary room, microphone, level, noise and line of a whole input."""
    if generator.random() < recipe.equaliser_chance:
        features = equalise(features, recipe.equaliser_nats, generator)
    quiet = generator.random() < recipe.quiet_chance
    gain_db = generator.uniform(*(recipe.quiet_gain_db if quiet else recipe.gain_db))
    features = features + np.float32(gain_db * _NATS_PER_DB)
    heard = features[features.mean(axis=1) > features.mean()]
    level = float(heard.mean()) if len(heard) else 0.0
    power = np.exp(features)
    if generator.random() < recipe.reverberation_chance:
        power = reverberate(power, generator)
    if generator.random() < recipe.noise_chance:
        snr = generator.uniform(*recipe.noise_snr_db) * _NATS_PER_DB
        power += np.exp(bank.steady(len(features), generator) + np.float32(level - snr))
    if generator.random() < recipe.babble_chance:
        snr = generator.uniform(*recipe.babble_snr_db) * _NATS_PER_DB
        power += np.exp(bank.babble(len(features), generator) + np.float32(level - snr))
    floor = np.float32(generator.uniform(*recipe.floor_nats))
    power += np.exp(bank.steady(len(features), generator) / 3 + floor)
    mixed = np.log(power)
    if generator.random() < recipe.telephone_chance:
        mixed = telephone(mixed, generator)
    return np.asarray(mixed, dtype=np.float32)
