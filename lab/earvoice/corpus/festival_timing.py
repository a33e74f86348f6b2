"""Festival, asked when it says each word."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from earvoice.corpus.synthesizer import festival_voice, level, quoted, run
from earvoice.corpus.word_timing import TimedSpeech, time_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.corpus.voice import Voice

_PRELUDE = """
(define (say_timed text path)
  (let ((utterance (eval (list 'Utterance 'Text text))))
    (utt.synth utterance)
    (utt.save.wave utterance path 'riff)
    (mapcar
      (lambda (token)
        (if (null (item.parent token))
          (begin
            (format t "token")
            (mapcar
              (lambda (word)
                (format t " %f %f" (item.feat word "word_start") (item.feat word "word_end")))
              (item.daughters token))
            (format t "\\n"))))
      (utt.relation.items utterance 'Token))
    (format t "end\\n")))
"""


def speak_with_festival_timed(requests: Sequence[tuple[Voice, str]]) -> list[TimedSpeech]:
    """Speak many texts in one festival process; times come from its segments.

    Raises:
        SynthesisError: festival failed, or said other words than the text has.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{index}.wav" for index in range(len(requests))]
        lines = [_PRELUDE]
        for (voice, text), path in zip(requests, paths, strict=True):
            lines.append(f'{festival_voice(voice)}\n(say_timed "{quoted(text)}" "{path}")')
        script = Path(folder) / "speak.scm"
        script.write_text("\n".join(lines), encoding="latin-1", errors="replace")
        told = run(["festival", "--batch", str(script)]).decode("latin-1").split("end\n")
        spoken = []
        for (voice, text), path, report in zip(requests, paths, told[:-1], strict=True):
            samples, rate_hz = soundfile.read(path, dtype="float32")
            levelled = level(samples, rate_hz, voice)
            duration_ms = 1000 * len(samples) / rate_hz / voice.speed
            words = time_words(text, _token_spans(report), voice.speed, duration_ms)
            spoken.append(TimedSpeech(levelled, words))
        return spoken


def _token_spans(report: str) -> list[tuple[float, float]]:
    """Read start and end of each token; punctuation among its words has no times."""
    spans = []
    for line in report.splitlines():
        if line.startswith("token"):
            times = [float(number) for number in line.split()[1:]]
            spans.append((times[0] if times else 0.0, max(times, default=0.0)))
    return spans
