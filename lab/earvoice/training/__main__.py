"""Command line of training: ``python -m earvoice.training STEP``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.dataset import TrainingData
from earvoice.training.dev_set import read_dev_sets, score
from earvoice.training.export import export
from earvoice.training.halves import open_subsampler, set_lower_dropout
from earvoice.training.model_shape import default_model
from earvoice.training.normalisation import Normalisation, measure_normalisation
from earvoice.training.recipe import TrainingRecipe
from earvoice.training.run_state import RunFolder, default_run_folder
from earvoice.training.text_data import TextData
from earvoice.training.trainer import Budget, Trainer
from earvoice.training.vocabulary_training import train_vocabularies

if TYPE_CHECKING:
    from earvoice.training.dev_set import DevClip
    from earvoice.training.metric import Score

_MEASURED = ("chat/seen", "chat/unseen", "chat/speaker", "ljspeech")
_MEASURED_CLIPS = 48


def main() -> None:
    """Run one step of training."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    prepare = steps.add_parser("prepare", help="write vocabularies and statistics")
    train = steps.add_parser("train", help="train, or continue an interrupted run")
    train.add_argument(
        "--minutes", type=float, default=Budget.minutes, help="training time of one core"
    )
    train.add_argument(
        "--wall-minutes", type=float, default=Budget.wall_minutes, help="limit by the clock"
    )
    train.add_argument("--threads", type=int, default=1, help="cores to compute on")
    exporting = steps.add_parser("export", help="average the last snapshots into a checkpoint")
    exporting.add_argument("--snapshots", type=int, default=5, help="how many are averaged")
    exporting.add_argument("--to", type=Path, required=True, help="checkpoint directory")
    for step in (prepare, train, exporting):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    for step in (train, exporting):
        step.add_argument(
            "--run",
            type=Path,
            default=default_run_folder(),
            help="folder of states and snapshots (default: %(default)s)",
        )
    options = parser.parse_args()
    _STEPS[options.step](options)


def _prepare(options: argparse.Namespace) -> None:
    recipe = TrainingRecipe()
    train_vocabularies(options.corpus, recipe)
    measure_normalisation(options.corpus, recipe).write(options.corpus)


def _train(options: argparse.Namespace) -> None:
    recipe = TrainingRecipe()
    torch.set_num_threads(options.threads)
    torch.manual_seed(recipe.seed)
    source = Vocabulary.from_file(options.corpus / "source.model")
    target = Vocabulary.from_file(options.corpus / "target.model")
    torch.set_flush_denormal(True)
    config = default_model(len(source), len(target))
    network = SpeechTranslationModel(config, dropout=recipe.dropout)
    open_subsampler(network)
    set_lower_dropout(network, recipe.lower_dropout)
    normalisation = Normalisation.read(options.corpus)
    data = TrainingData(options.corpus, recipe, source, target, normalisation)
    sets = read_dev_sets(options.corpus, normalisation.for_model())
    chosen = {name: sets[name][:_MEASURED_CLIPS] for name in _MEASURED}
    measure = partial(_measure, sets=chosen, source=source, target=target)
    budget = Budget(minutes=options.minutes, wall_minutes=options.wall_minutes)
    text = TextData(options.corpus, recipe.text, source, target)
    Trainer(network, data, text, recipe, budget, RunFolder(options.run), measure).run()


def _measure(
    network: SpeechTranslationModel,
    sets: dict[str, list[DevClip]],
    source: Vocabulary,
    target: Vocabulary,
) -> list[Score]:
    return [score(name, clips, network, source, target) for name, clips in sets.items()]


def _export(options: argparse.Namespace) -> None:
    export(options.corpus, RunFolder(options.run), options.snapshots, options.to)


_STEPS = {"prepare": _prepare, "train": _train, "export": _export}

if __name__ == "__main__":
    main()
