"""The recording of ``make demo``: how the first held-out conversation begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import soundfile

from earvoice.corpus.kokoro import speak_with_kokoro
from earvoice.corpus.synthesizer import SAMPLE_RATE_HZ
from earvoice.corpus.test_set import held_out_sentences
from earvoice.corpus.voice import Voice

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_TURNS = 5
_PAUSE_SAMPLES = int(0.45 * SAMPLE_RATE_HZ)
DEMO_VOICES = {"agent": Voice("kokoro", "af_sarah"), "customer": Voice("kokoro", "am_michael")}
"""Training uses neither."""


def write_demo(text: Path, kokoro: Path, seed: int, out: Path) -> None:
    """Write the first turns of customer service, with pauses: 16 kHz, mono, 16 bit.

    Raises:
        SynthesisError: the neural synthesiser is not there, or failed.
    """
    turns = [row for row in held_out_sentences(text, seed) if row.domain == "chat"][:_TURNS]
    pause: NDArray[np.int16] = np.zeros(_PAUSE_SAMPLES, np.int16)
    parts = [pause]
    for turn in turns:
        parts += [speak_with_kokoro(kokoro, DEMO_VOICES[turn.speaker], turn.spoken), pause]
    soundfile.write(out, np.concatenate(parts), SAMPLE_RATE_HZ, subtype="PCM_16")
