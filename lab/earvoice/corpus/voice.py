"""The synthetic speakers: engines, their voices, and how far each is varied."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Engine = Literal["espeak-ng", "flite", "festival", "hibari", "kokoro", "pico"]

_ACCENTS = ("en-us", "en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-029")
_VARIANTS = (
    *("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5"),
    *("klatt", "klatt2", "klatt3", "klatt4", "adam", "Alex", "Andy", "Annie", "belinda"),
    *("benjamin", "boris", "caleb", "david", "ed", "edward", "Gene", "john", "linda", "max"),
    *("miguel", "norbert", "quincy", "rob", "robert", "steph", "travis", "victor", "zac"),
)
_ENGINES = ("espeak-ng", "flite", "festival-hts", "festival-diphone")
_SHARES = (42, 36, 18, 4)
_SECOND_SHARES = (42, 28, 14, 16)
"""The diphone voice is the nearest of kin to a human speaker's: four times as often."""
_HELD_OUT_VARIANTS = ("Michael", "anika", "shelby", "paul")
_AMERICANS = (
    *("af_alloy", "af_aoede", "af_heart", "af_jessica", "af_kore", "af_nicole", "af_nova"),
    *("af_river", "af_sky", "am_adam", "am_echo", "am_eric", "am_fenrir", "am_liam", "am_onyx"),
    *("am_puck", "am_santa"),
)
_BRITONS = ("bf_alice", "bf_isabella", "bf_lily", "bm_daniel", "bm_fable", "bm_lewis")
_FOREIGNERS = (
    *("ef_dora", "em_alex", "ff_siwis", "hf_alpha", "hf_beta", "hm_omega", "hm_psi", "if_sara"),
    *("im_nicola", "jf_alpha", "jf_nezumi", "jm_kumo", "pf_dora", "pm_alex", "zf_xiaobei"),
    *("zf_xiaoyi", "zm_yunjian", "zm_yunxi"),
)
_NEURAL_SHARES = (55, 25, 20)
_BLENDED_CHANCE = 0.5
_HIBARI_CHANCE = 0.5
_HELD_OUT_ENGINE = ("en-US", "en-GB")
_HELD_OUT_NEURAL = ("af_bella", "af_sarah", "am_michael", "bf_emma", "bm_george")


@dataclass(frozen=True)
class Voice:
    """One speaker of one engine.

    Attributes:
        engine: the program that speaks.
        name: the program's own name of the voice (espeak-ng: ``accent+variant``; kokoro: two
            voices can be blended, ``first+second@SHARE`` of the first).
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
    return _draw_known(_SHARES, generator)


def draw_second_voice(generator: random.Random) -> Voice:
    """Draw a voice for a sentence that another one has said before: 30 % festival."""
    return _draw_known(_SECOND_SHARES, generator)


def draw_third_voice(generator: random.Random) -> Voice:
    """Draw one of the two that are nearest of kin to people and quick: Hibari, festival's diphones.

    Each has but one speaker, so both are varied widely.
    """
    if generator.random() < _HIBARI_CHANCE:
        return _draw_paced("hibari", "heart", (0.8, 1.35), (0.82, 1.2), generator)
    return _draw_paced("festival", "kal_diphone", (0.8, 1.25), (0.84, 1.22), generator)


def draw_unseen_voice(generator: random.Random) -> Voice:
    """Draw a voice that training never uses, of an engine that it does use (espeak-ng)."""
    return _draw_espeak(f"en-us+{generator.choice(_HELD_OUT_VARIANTS)}", generator)


def draw_unseen_speaker(generator: random.Random) -> Voice:
    """Draw festival's ``ked`` voice: a human speaker's recordings that training never uses."""
    return _draw_diphone("ked_diphone", generator)


def draw_neural_voice(generator: random.Random) -> Voice:
    """Draw a neural voice for training; every other one is a blend, a speaker of its own."""
    first = generator.choice(
        generator.choices((_AMERICANS, _BRITONS, _FOREIGNERS), _NEURAL_SHARES)[0]
    )
    second = generator.choice((*_AMERICANS, *_BRITONS, *_FOREIGNERS))
    share = generator.uniform(0.3, 0.7)
    blended = generator.random() < _BLENDED_CHANCE
    return _draw_neural(f"{first}+{second}@{share:.2f}" if blended else first, generator)


def draw_unseen_neural_voice(generator: random.Random) -> Voice:
    """Draw a neural voice that training never uses, neither alone nor in a blend."""
    return _draw_neural(generator.choice(_HELD_OUT_NEURAL), generator)


def draw_unseen_engine(generator: random.Random) -> Voice:
    """Draw a voice of an engine that training never hears (Pico)."""
    name = generator.choice(_HELD_OUT_ENGINE)
    return _draw_paced("pico", name, (0.85, 1.2), (0.92, 1.1), generator)


def _draw_known(shares: tuple[int, ...], generator: random.Random) -> Voice:
    engine = generator.choices(_ENGINES, shares)[0]
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


def _draw_neural(name: str, generator: random.Random) -> Voice:
    return _draw_paced("kokoro", name, (0.85, 1.35), (0.9, 1.12), generator)


def _draw_espeak(name: str, generator: random.Random) -> Voice:
    return Voice(
        "espeak-ng",
        name,
        rate=generator.uniform(0.75, 1.2),
        pitch=generator.uniform(20, 80),
        speed=generator.uniform(0.9, 1.12),
    )


def _draw_flite(name: str, generator: random.Random) -> Voice:
    return _draw_paced("flite", name, (0.8, 1.2), (0.84, 1.2), generator)


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
    return _draw_paced("festival", name, (0.85, 1.15), (0.88, 1.15), generator)


def _draw_paced(
    engine: Engine,
    name: str,
    rates: tuple[float, float],
    speeds: tuple[float, float],
    generator: random.Random,
) -> Voice:
    """Vary what every engine can: rate, then speed."""
    return Voice(engine, name, rate=generator.uniform(*rates), speed=generator.uniform(*speeds))
