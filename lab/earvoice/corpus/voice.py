"""The synthetic speakers: engines, their voices, and how much each is varied."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Engine = Literal["espeak-ng", "flite", "hibari", "pico"]

_ACCENTS = ("en-us", "en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-029")
_VARIANTS = (
    *("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5"),
    *("klatt", "klatt2", "klatt3", "klatt4", "adam", "Alex", "Andy", "Annie", "belinda"),
    *("benjamin", "boris", "caleb", "david", "ed", "edward", "Gene", "john", "linda", "max"),
    *("miguel", "norbert", "quincy", "rob", "robert", "steph", "travis", "victor", "zac"),
)
_HELD_OUT_VARIANTS = ("Michael", "anika", "shelby", "paul")
_FLITE = ("awb", "awb", "rms", "rms", "slt", "kal16")
_PICO_FOREIGN = {"de": "de-DE", "es": "es-ES", "fr": "fr-FR", "it": "it-IT"}
_SHARES = {"espeak-ng": 45, "flite": 38, "hibari": 17}


@dataclass(frozen=True)
class Voice:
    """One speaker of one engine."""

    engine: Engine
    name: str
    """The engine's own name of the voice; for espeak-ng ``accent+variant``."""
    rate: float = 1.0
    """Speaking rate relative to the voice's own, 0.5 to 2."""
    pitch: float = 0.0
    """Only for espeak-ng, 0 to 99."""
    speed: float = 1.0
    """The finished wave is played this many times faster, which also shifts pitch and formants."""


def draw_training_voice(generator: random.Random) -> Voice:
    engine = generator.choices(list(_SHARES), list(_SHARES.values()))[0]
    if engine == "espeak-ng":
        return _espeak(f"{generator.choice(_ACCENTS)}+{generator.choice(_VARIANTS)}", generator)
    if engine == "flite":
        return _paced("flite", generator.choice(_FLITE), (0.8, 1.2), (0.84, 1.2), generator)
    return _paced("hibari", "heart", (0.8, 1.35), (0.82, 1.2), generator)


def draw_unseen_voice(generator: random.Random) -> Voice:
    """A voice that training never uses, of an engine that it does use."""
    return _espeak(f"en-us+{generator.choice(_HELD_OUT_VARIANTS)}", generator)


def draw_pico(generator: random.Random) -> Voice:
    """A Pico voice: only the CTC branch is trained on this engine, no decoder."""
    return _paced("pico", generator.choice(("en-US", "en-GB")), (0.85, 1.2), (0.92, 1.1), generator)


def draw_foreign_voice(tag: str, generator: random.Random, *, is_plain: bool = True) -> Voice:
    """espeak-ng in another language, with one of its twelve plain voices or of all."""
    return _espeak(
        f"{tag}+{generator.choice(_VARIANTS[:12] if is_plain else _VARIANTS)}", generator
    )


def draw_foreign_pico(tag: str, generator: random.Random) -> Voice | None:
    """Pico in another language; None if it has no such voice."""
    name = _PICO_FOREIGN.get(tag)
    return _paced("pico", name, (0.85, 1.2), (0.92, 1.1), generator) if name else None


def _espeak(name: str, generator: random.Random) -> Voice:
    rate, pitch = generator.uniform(0.75, 1.2), generator.uniform(20, 80)
    return Voice("espeak-ng", name, rate, pitch, generator.uniform(0.9, 1.12))


def _paced(
    engine: Engine,
    name: str,
    rates: tuple[float, float],
    speeds: tuple[float, float],
    generator: random.Random,
) -> Voice:
    return Voice(engine, name, generator.uniform(*rates), speed=generator.uniform(*speeds))
