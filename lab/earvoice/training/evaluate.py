"""Measure a checkpoint on held-out speech: ``python -m earvoice.training.evaluate``.

Prints a line for every set and target language: the word error rate of the CTC transcript and
sacreBLEU of the translation of whole inputs (offline). ``joined/VOICE`` are neighbouring chat
sentences in inputs of 5 to 15 s, ``telephone/VOICE`` the chat sentences over an 8 kHz line, and
``librispeech`` the transcribed LibriSpeech clips among the samples. Then, through the services,
joined inputs of the test sets with the model's own policy and offline, both greedy, and the words
that silence and babble give; the cost of an encoder pass; at the end a table of what is to be
reached. What a live stream costs, ``benchmarks/live_streams.py`` measures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.translation import parameter_count
from earvoice.training.derived_set import (
    join,
    make_babble,
    make_silence,
    read_over_telephone,
    read_samples,
)
from earvoice.training.dev_set import read_dev_sets, score, with_translation
from earvoice.training.goal import Measurements, goal_table
from earvoice.training.metric import bleu
from earvoice.training.service_trial import ServiceTrial, run_trial
from earvoice.training.target_text import TargetText

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from earvoice.training.dev_set import DevClip

_LIVE_SETS = {"de": ("joined", "chat"), "es": ("spanish", "tatoeba")}
"""By target language: the test set, and the domain whose inputs are translated live."""


def main() -> None:
    """Print the scores of a checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training.evaluate")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--data", type=Path, required=True, help="folder with speech/")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses kept; 1 is greedy")
    parser.add_argument("--clips", type=int, default=200, help="of each set, at most")
    parser.add_argument(
        "--testset", type=Path, required=True, help="folder with the sets joined/ and spanish/"
    )
    parser.add_argument(
        "--live-clips", type=int, default=100, help="inputs of them, at most (%(default)s)"
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
    with TemporaryDirectory(prefix="earvoice-evaluate-") as folder:
        asyncio.run(_try_services(evaluation, options, Path(folder)))
    _say(f"encoder pass over 10 s: {encoder_ms(checkpoint):.1f} ms")
    _say(f"sacreBLEU {bleu([''], [''])[2]}, beam {options.beam}")
    _say(goal_table(evaluation.found))


async def _try_services(evaluation: Evaluation, options: argparse.Namespace, folder: Path) -> None:
    async with run_trial(options.model.absolute(), folder) as trial:
        await evaluation.print_live(trial, options.testset, options.live_clips)
        await evaluation.print_wordless(trial, "silence", make_silence())
        await evaluation.print_wordless(trial, "babble", make_babble(options.data / "speech"))


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

    async def print_live(self, trial: ServiceTrial, test_sets: Path, limit: int) -> None:
        """Print what the services make of joined inputs with the model's policy, and offline."""
        for language in self.target.languages:
            folder, domain = _LIVE_SETS[language]
            live, offline = await trial.translate(test_sets / folder, domain, language, limit)
            self.found.live[language] = live, offline
            share = 100 * live.bleu / offline.bleu if offline.bleu else 0.0
            _say(f"{domain}, joined, live {language}: {live}; {share:.0f} % of offline {offline}")

    async def print_wordless(
        self, trial: ServiceTrial, name: str, samples: NDArray[np.float32]
    ) -> None:
        """Print how many words the services commit where nobody is to be understood."""
        counts = {code: await trial.count_words(samples, code) for code in self.target.languages}
        self.found.words[name] = sum(counts.values())
        shown = ", ".join(f"{count} {language}" for language, count in counts.items())
        _say(f"{name}, 60 s: words committed: {shown}")


def read_sets(corpus: Path, speech: Path, checkpoint: Checkpoint) -> dict[str, list[DevClip]]:
    """Return the corpus's held-out sets and those made of them."""
    sets = read_dev_sets(corpus, checkpoint.normalisation)
    spoken = {name: clips for name, clips in sets.items() if name.startswith("chat/")}
    sets |= {f"joined/{name.removeprefix('chat/')}": join(clips) for name, clips in spoken.items()}
    sets |= read_over_telephone(corpus, "chat", checkpoint.normalisation)
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
