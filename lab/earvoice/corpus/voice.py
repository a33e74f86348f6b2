"""The synthetic speakers: engines, their voices, and how far each is varied."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Engine = Literal["espeak-ng", "flite", "festival"]

_ACCENTS = ("en-us", "en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-029")
_VARIANTS = (
    *("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5"),
    *("klatt", "klatt2", "klatt3", "klatt4", "adam", "Alex", "Andy", "Annie", "belinda"),
    *("benjamin", "boris", "caleb", "david", "ed", "edward", "Gene", "john", "linda", "max"),
    *("miguel", "norbert", "quincy", "rob", "robert", "steph", "travis", "victor", "zac"),
)
_ENGINES = ("espeak-ng", "flite", "festival-hts", "festival-diphone")
_SHARES = (42, 36, 18, 4)
_HELD_OUT_VARIANTS = ("Michael", "anika", "shelby", "paul")


@dataclass(frozen=True)
class Voice:
    """One speaker of one engine.

    Attributes:
        engine: the program that speaks.
        name: the program's own name of the voice (espeak-ng: ``accent+variant``).
        rate: speaking rate over the voice's own, 0.5 to 2.
        pitch: espeak-ng 0 to 99; festival's HTS half-tones -12 to 12; unused elsewhere.
        warp: festival's HTS all-pass constant 0.3 to 0.6 (the voice's own is 0.45): smaller
            makes the vocal tract longer; unused elsewhere.
        speed: the finished wave is played this many times faster, pitch and formants with it.
    """

    engine: Engine
    name: str
    rate: float = 1.0
    pitch: float = 0.0
    warp: float = 0.45
    speed: float = 1.0


def draw_training_voice(generator: random.Random) -> Voice:
    """Draw a voice for training: 42 % espeak-ng, 36 % flite, 22 % festival."""
    engine = generator.choices(_ENGINES, _SHARES)[0]
    if engine == "espeak-ng":
        name = f"{generator.choice(_ACCENTS)}+{generator.choice(_VARIANTS)}"
        return _draw_espeak(name, generator)
    if engine == "flite":
        return _draw_flite(
            generator.choice(("awb", "awb", "rms", "rms", "slt", "kal16")), generator
        )
    if engine == "festival-hts":
        return _draw_hts(generator)
    return _draw_diphone("kal_diphone", generator)


def draw_unseen_voice(generator: random.Random) -> Voice:
    """Draw a voice that training never uses, of an engine that it does use (espeak-ng)."""
    return _draw_espeak(f"en-us+{generator.choice(_HELD_OUT_VARIANTS)}", generator)


def draw_unseen_speaker(generator: random.Random) -> Voice:
    """Draw festival's ``ked`` voice: a human speaker's recordings that training never uses."""
    return _draw_diphone("ked_diphone", generator)


def _draw_espeak(name: str, generator: random.Random) -> Voice:
    return Voice(
        "espeak-ng",
        name,
        rate=generator.uniform(0.75, 1.2),
        pitch=generator.uniform(20, 80),
        speed=generator.uniform(0.9, 1.12),
    )


def _draw_flite(name: str, generator: random.Random) -> Voice:
    return Voice(
        "flite",
        name,
        rate=generator.uniform(0.8, 1.2),
        speed=generator.uniform(0.84, 1.2),
    )


def _draw_hts(generator: random.Random) -> Voice:
    return Voice(
        "festival",
        "cmu_us_slt_arctic_hts",
        rate=generator.uniform(0.8, 1.25),
        pitch=generator.uniform(-12, 4),
        warp=generator.uniform(0.37, 0.52),
        speed=generator.uniform(0.92, 1.08),
    )


def _draw_diphone(name: str, generator: random.Random) -> Voice:
    return Voice(
        "festival",
        name,
        rate=generator.uniform(0.85, 1.15),
        speed=generator.uniform(0.88, 1.15),
    )
