"""Measure a checkpoint on held-out speech: ``python -m earvoice.training.evaluate``.

Prints a line for every set and target language: the word error rate of the CTC transcript and
sacreBLEU of the translation of whole inputs (offline). ``joined/VOICE`` are neighbouring chat
sentences in inputs of 5 to 15 s, ``telephone/VOICE`` the chat sentences over an 8 kHz line, and
``librispeech`` the transcribed LibriSpeech clips among the samples. Then the same joined inputs
segment by segment under EDAtt with the model's own layer, alpha and segment (lambda 2, mean of all
heads), the words that silence and babble give, and the cost of an encoder pass; at the end a table
of what is to be reached. What a live stream costs, ``benchmarks/live_streams.py`` measures.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.translation import parameter_count
from earvoice.training.calibration import chosen_clips, score_sessions, translate
from earvoice.training.derived_set import (
    join,
    make_babble,
    make_silence,
    over_telephone,
    read_samples,
)
from earvoice.training.dev_set import read_dev_sets, score, with_translation
from earvoice.training.goal import Measurements, goal_table
from earvoice.training.metric import bleu
from earvoice.training.target_text import TargetText

if TYPE_CHECKING:
    from earvoice.training.dev_set import DevClip

_VOICES = ("seen", "unseen", "speaker")


def main() -> None:
    """Print the scores of a checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training.evaluate")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--data", type=Path, required=True, help="folder with speech/")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses kept; 1 is greedy")
    parser.add_argument("--clips", type=int, default=200, help="of each set, at most")
    parser.add_argument(
        "--live-clips", type=int, default=60, help="joined inputs translated live, at most"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(options.model)
    evaluation = Evaluation(checkpoint, TargetText.of_checkpoint(checkpoint), options.beam)
    _say(
        f"{checkpoint.name}: {parameter_count(checkpoint.config):,} parameters, beam {options.beam}"
    )
    sets = read_sets(options.corpus, options.data / "speech", checkpoint)
    for name in sorted(sets):
        evaluation.print_offline(name, sets[name], options.clips)
    for language in evaluation.target.languages:
        clips = chosen_clips(sets, language)[: options.live_clips]
        evaluation.print_simultaneous(clips, language)
    for clip in (
        make_silence(checkpoint.normalisation),
        make_babble(options.data / "speech", checkpoint.normalisation),
    ):
        evaluation.print_wordless(clip)
    _say(f"encoder pass over 10 s: {encoder_ms(checkpoint):.1f} ms")
    _say(f"sacreBLEU {bleu([''], [''])[2]}, beam {options.beam}")
    _say(goal_table(evaluation.found))


@dataclass(frozen=True)
class Evaluation:
    """A checkpoint, how it is asked, and what has been found."""

    checkpoint: Checkpoint
    target: TargetText
    beam: int
    found: Measurements = field(default_factory=Measurements)

    def print_offline(self, name: str, clips: list[DevClip], limit: int) -> None:
        """Print word error rate and BLEU in every language in which the set has references."""
        kept = {code: with_translation(clips, code)[:limit] for code in self.target.languages}
        chosen = {f" {code}": rows for code, rows in kept.items() if rows} or {"": clips[:limit]}
        for suffix, rows in chosen.items():
            result = score(
                f"{name}{suffix}",
                rows,
                self.checkpoint.network,
                self.checkpoint.source_vocabulary,
                self.target,
                suffix.strip() or self.target.languages[0],
                self.beam,
            )
            self.found.scores[result.name] = result
            _say(str(result))

    def print_simultaneous(self, clips: list[DevClip], language: str) -> None:
        """Print BLEU and LAAL under the model's own layer and alpha, and greedy BLEU offline."""
        defaults = self.checkpoint.config.policy_defaults
        grid = [(defaults.attention_layer, defaults.alpha)]
        opening = self.target.opening(language)
        runs = [
            translate(clip, grid, defaults.segment_ms, self.checkpoint, opening)[0]
            for clip in clips
        ]
        live = score_sessions(runs, clips, self.checkpoint, language)
        offline = score(
            "offline",
            clips,
            self.checkpoint.network,
            self.checkpoint.source_vocabulary,
            self.target,
            language,
        )
        self.found.live[language] = live, offline
        share = 100 * live.bleu / offline.bleu if offline.bleu else 0.0
        _say(f"simultaneous {language}: {live}, {share:.0f} % of greedy {offline}")

    def print_wordless(self, clip: DevClip) -> None:
        """Print how many words a minute without speech gives."""
        defaults = self.checkpoint.config.policy_defaults
        grid = [(defaults.attention_layer, defaults.alpha)]
        counts = {}
        for language in self.target.languages:
            opening = self.target.opening(language)
            (run,) = translate(clip, grid, defaults.segment_ms, self.checkpoint, opening)
            text = self.target.vocabulary.decode(run.committed)
            counts[language] = len(text.split())
        self.found.words[clip.sentence.key] = sum(counts.values())
        shown = ", ".join(f"{count} {language}" for language, count in counts.items())
        _say(f"{clip.sentence.key}, 60 s: words committed: {shown}")


def read_sets(corpus: Path, speech: Path, checkpoint: Checkpoint) -> dict[str, list[DevClip]]:
    """Return the corpus's held-out sets and those made of them."""
    sets = read_dev_sets(corpus, checkpoint.normalisation)
    for voice in _VOICES:
        sets[f"joined/{voice}"] = join(sets[f"chat/{voice}"])
        sets[f"telephone/{voice}"] = [
            over_telephone(clip, checkpoint.normalisation) for clip in sets[f"chat/{voice}"]
        ]
    sets["librispeech"] = read_samples(speech / "samples", checkpoint.normalisation)
    return sets


def encoder_ms(checkpoint: Checkpoint, repeats: int = 20) -> float:
    """Return the median time of one encoder pass over 10 s of noise on one core."""
    features = torch.randn(1_000, checkpoint.config.mel_bins)
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        checkpoint.network.encoder.encode(features)
        taken.append(1000 * (time.perf_counter() - started))
    return float(np.median(taken))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
