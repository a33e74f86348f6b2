"""Command line of training: ``python -m earvoice.training STEP``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from earvoice.models.vocabulary import Vocabulary
from earvoice.training.dataset import TrainingData
from earvoice.training.dev_set import read_dev_sets, score, with_translation
from earvoice.training.export import export, write
from earvoice.training.growth import grow
from earvoice.training.halves import set_lower_dropout
from earvoice.training.model_shape import TARGET_TAGS, grown_model
from earvoice.training.normalisation import measure_normalisation
from earvoice.training.recipe import FIRST_STAGE, SECOND_STAGE
from earvoice.training.run_state import RunFolder, default_run_folder
from earvoice.training.start import TrainingStart
from earvoice.training.text_data import TextData
from earvoice.training.trainer import Budget, Trainer
from earvoice.training.vocabulary_training import train_joint_target, train_vocabularies

if TYPE_CHECKING:
    from earvoice.models.translation import SpeechTranslationModel
    from earvoice.training.dev_set import DevClip
    from earvoice.training.metric import Score

_MEASURED = (
    ("chat/seen", "de"),
    ("chat/unseen", "de"),
    ("chat/speaker", "de"),
    ("tatoeba/unseen", "es"),
    ("ljspeech", "de"),
)
_MEASURED_CLIPS = 48


def main() -> None:
    """Run one step of training."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    prepare = steps.add_parser("prepare", help="write vocabularies and statistics")
    growing = steps.add_parser("grow", help="make a checkpoint deeper, for German and Spanish")
    growing.add_argument("--to", type=Path, required=True, help="checkpoint directory to write")
    train = steps.add_parser("train", help="train, or continue an interrupted run")
    _add_budget(train)
    exporting = steps.add_parser("export", help="average the last snapshots into a checkpoint")
    exporting.add_argument("--snapshots", type=int, default=5, help="how many are averaged")
    exporting.add_argument(
        "--milestones", action="store_true", help="write the run's milestones instead, TO/1, TO/2 …"
    )
    exporting.add_argument("--to", type=Path, required=True, help="checkpoint directory")
    for step in (prepare, growing, train, exporting):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    for step in (growing, train, exporting):
        step.add_argument(
            "--start",
            type=Path,
            required=step is growing,
            help="checkpoint that the run begins with (default: a fresh network)",
        )
    for step in (train, exporting):
        step.add_argument(
            "--run",
            type=Path,
            default=default_run_folder(),
            help="folder of states and snapshots (default: %(default)s)",
        )
    options = parser.parse_args()
    _STEPS[options.step](options)


def _add_budget(train: argparse.ArgumentParser) -> None:
    train.add_argument(
        "--minutes", type=float, default=Budget.minutes, help="training time of one core"
    )
    train.add_argument(
        "--wall-minutes", type=float, default=Budget.wall_minutes, help="limit by the clock"
    )
    train.add_argument("--threads", type=int, default=1, help="cores to compute on")


def _prepare(options: argparse.Namespace) -> None:
    train_vocabularies(options.corpus, FIRST_STAGE)
    measure_normalisation(options.corpus, FIRST_STAGE).write(options.corpus)


def _grow(options: argparse.Namespace) -> None:
    torch.manual_seed(SECOND_STAGE.seed)
    start = TrainingStart.from_checkpoint(options.start)
    target_model = train_joint_target(options.corpus, SECOND_STAGE.target_pieces)
    pieces = len(Vocabulary(target_model, TARGET_TAGS))
    grown = grow(start, grown_model(start.config.source_pieces, pieces), target_model)
    write(grown, grown.network(0.0).state_dict(), options.to, torch.float32)


def _train(options: argparse.Namespace) -> None:
    recipe = SECOND_STAGE if options.start else FIRST_STAGE
    torch.set_num_threads(options.threads)
    torch.manual_seed(recipe.seed)
    torch.set_flush_denormal(True)
    start = _start(options)
    source, target = start.source(), start.target()
    network = start.network(recipe.dropout)
    set_lower_dropout(network, recipe.lower_dropout)
    data = TrainingData(options.corpus, recipe, source, target, start.normalisation)
    sets = read_dev_sets(options.corpus, start.normalisation.for_model())
    measured = [
        (name, language, sets[name])
        for name, language in _MEASURED
        if name in sets and language in target.languages
    ]

    def measure(network: SpeechTranslationModel) -> list[Score]:
        return [
            score(f"{name}/{language}", _chosen(clips, language), network, source, target, language)
            for name, language, clips in measured
        ]

    budget = Budget(minutes=options.minutes, wall_minutes=options.wall_minutes)
    text = TextData(options.corpus, recipe.text, source, target)
    Trainer(network, data, text, recipe, budget, RunFolder(options.run), measure).run()


def _chosen(clips: list[DevClip], language: str) -> list[DevClip]:
    """Return the first clips with a translation; all are without where the corpus has none."""
    return (with_translation(clips, language) or clips)[:_MEASURED_CLIPS]


def _export(options: argparse.Namespace) -> None:
    run, start = RunFolder(options.run), _start(options)
    if options.milestones:
        for path in run.milestones():
            export(start, [path], options.to / path.stem)
        return
    export(start, run.snapshots()[-options.snapshots :], options.to)


def _start(options: argparse.Namespace) -> TrainingStart:
    if options.start:
        return TrainingStart.from_checkpoint(options.start)
    return TrainingStart.fresh(options.corpus)


_STEPS = {"prepare": _prepare, "grow": _grow, "train": _train, "export": _export}

if __name__ == "__main__":
    main()
