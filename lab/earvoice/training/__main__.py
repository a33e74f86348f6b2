"""Command line of training: ``python -m earvoice.training STEP``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from earvoice.models.precision import DeviceError
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.budget import Budget
from earvoice.training.dataset import TrainingData
from earvoice.training.dev_set import read_dev_sets, score, with_translation
from earvoice.training.device import training_device
from earvoice.training.distillation import distil
from earvoice.training.export import export, write
from earvoice.training.growth import grow
from earvoice.training.halves import set_lower_dropout
from earvoice.training.model_shape import TARGET_TAGS, grown_model
from earvoice.training.normalisation import measure_normalisation
from earvoice.training.own_teacher import OwnTeacher
from earvoice.training.peers import find_peers
from earvoice.training.recipe import (
    FIRST_STAGE,
    HEARD_EXACTLY,
    SECOND_STAGE,
    THIRD_STAGE,
    TeacherRecipe,
    distilled,
    fine_tuned,
    paced,
    truncated,
)
from earvoice.training.respelling import respell
from earvoice.training.run_state import (
    AVERAGED_SNAPSHOTS,
    OtherStartError,
    RunFolder,
    average_snapshots,
    check_start,
    default_run_folder,
)
from earvoice.training.start import TrainingStart
from earvoice.training.teacher import TextTeacher
from earvoice.training.teacher_run import TeacherRun
from earvoice.training.text_data import TextData
from earvoice.training.trainer import Trainer
from earvoice.training.vocabulary_training import (
    train_joint_target,
    train_source,
    train_vocabularies,
)
from earvoice.training.wait_k_mask import WaitKMask

if TYPE_CHECKING:
    from earvoice.models.translation import SpeechTranslationModel
    from earvoice.training.dev_set import DevClip
    from earvoice.training.metric import Score
    from earvoice.training.recipe import TrainingRecipe

_MEASURED = (
    ("chat/seen", "de"),
    ("chat/unseen", "de"),
    ("chat/speaker", "de"),
    ("chat/neural", "de"),
    ("tatoeba/unseen", "es"),
    ("ljspeech", "de"),
)
_MEASURED_CLIPS = 48


def main() -> None:
    """Run one step of training."""
    parser = _build_parser()
    options = parser.parse_args()
    if options.step == "train" and options.fine_tune and not options.start:
        parser.error("--fine-tune needs --start: a network that is trained already")
    try:
        if "device" in options:
            options.device = training_device(options.device)
        _check_ranges(options)
        if options.step == "train":
            options.recipe = _recipe(options)
    except DeviceError as error:
        parser.error(f"argument --{error}")
    except ValueError as error:
        parser.error(str(error))
    try:
        _STEPS[options.step](options)
    except OtherStartError as error:
        parser.error(str(error))


def _check_ranges(options: argparse.Namespace) -> None:
    """See that the numbers are ones that a run can be made with.

    Raises:
        ValueError: one is not.
    """
    for name in ("minutes", "wall_minutes"):
        value = getattr(options, name, None)
        if value is not None and not value > 0.0:
            raise ValueError(f"--{name.replace('_', '-')} {value}; allowed: more than 0")
    for name in ("threads", "wait_k", "patience", "snapshots"):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value}; allowed: 1 or more")
    if not 0.0 <= getattr(options, "start_share", 0.0) <= 1.0:
        raise ValueError(f"--start-share {options.start_share}; allowed: 0 to 1")


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m earvoice.training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    prepare = steps.add_parser("prepare", help="write vocabularies and statistics")
    growing = steps.add_parser("grow", help="make a checkpoint deeper, for German and Spanish")
    respelling = steps.add_parser("respell", help="give a checkpoint longer transcript pieces")
    train = steps.add_parser("train", help="train, or continue an interrupted run")
    _add_budget(train)
    exporting = steps.add_parser("export", help="average the best snapshots into a checkpoint")
    exporting.add_argument(
        "--snapshots",
        type=int,
        default=AVERAGED_SNAPSHOTS,
        help="how many are averaged, around the best measurement (default: %(default)s)",
    )
    exporting.add_argument(
        "--start-share",
        type=float,
        default=0.0,
        help="share of --start's weights in the mean, 0 to 1 (default: %(default)s)",
    )
    exporting.add_argument(
        "--milestones", action="store_true", help="write the run's milestones instead, TO/1, TO/2 …"
    )
    teaching = steps.add_parser("teach", help="train a text-to-text teacher on the same texts")
    teaching.add_argument("--minutes", type=float, default=Budget.minutes)
    distilling = steps.add_parser("distil", help="write the teacher's translations: distilled.tsv")
    teaching.add_argument("--teacher", type=Path, required=True, help="file of the teacher")
    distilling.add_argument(
        "--teacher",
        type=Path,
        help="file of the teacher (default: the model of --start itself, that reads transcripts)",
    )
    distilling.add_argument(
        "--spoken-only", action="store_true", help="leave out the sentences that nobody speaks"
    )
    for step in (train, teaching, distilling):
        _add_device(step)
    for step in (prepare, growing, respelling, train, exporting, teaching, distilling):
        step.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    for step in (growing, respelling, train, exporting, teaching, distilling):
        step.add_argument(
            "--start",
            type=Path,
            required=step in (growing, respelling),
            help="checkpoint that the run begins with (default: a fresh network)",
        )
    for step in (growing, respelling, exporting):
        step.add_argument("--to", type=Path, required=True, help="checkpoint directory to write")
    for step in (train, exporting):
        _add_run(step)
    return parser


def _add_run(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--stage",
        type=int,
        choices=(1, 2, 3),
        help="whose recipe (default: 2 with --start, else 1)",
    )
    step.add_argument(
        "--run",
        type=Path,
        default=default_run_folder(),
        help="folder of states and snapshots (default: %(default)s)",
    )


def _add_device(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where the network computes; auto takes a GPU when there is one (default: auto)",
    )


def _add_budget(train: argparse.ArgumentParser) -> None:
    train.add_argument(
        "--minutes", type=float, default=Budget.minutes, help="training time of one core or GPU"
    )
    train.add_argument(
        "--wall-minutes",
        type=float,
        default=Budget.wall_minutes,
        help="limit by the clock (default: none)",
    )
    train.add_argument("--threads", type=int, default=1, help="cores to compute on")
    train.add_argument(
        "--distilled", action="store_true", help="learn from the teacher's translations too"
    )
    train.add_argument(
        "--fine-tune", action="store_true", help="some minutes more of a finished network"
    )
    train.add_argument(
        "--peak-rate",
        type=float,
        help="the highest learning rate, between 0 and 1 (default: the recipe's)",
    )
    train.add_argument(
        "--wait-k", type=int, help="show the t-th target word only the first K + t - 1 source words"
    )
    train.add_argument(
        "--truncated",
        type=float,
        metavar="SHARE",
        help="cut off a share of the inputs, 0 to 1, in mid-sentence (default: the stage's)",
    )
    train.add_argument(
        "--patience", type=int, help="end after so many measurements without a better one"
    )
    train.add_argument(
        "--after", type=Path, help="go on, in a new --run, from another's before-decay.pt"
    )


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


def _respell(options: argparse.Namespace) -> None:
    start = TrainingStart.from_checkpoint(options.start)
    source_model = train_source(options.corpus, THIRD_STAGE.source_pieces)
    respelled = respell(start, source_model)
    write(respelled, respelled.network(0.0).state_dict(), options.to, torch.float32)


def _train(options: argparse.Namespace) -> None:
    recipe = options.recipe
    torch.set_num_threads(options.threads)
    torch.manual_seed(recipe.seed)
    torch.set_flush_denormal(True)
    start = _start(options)
    source, target = start.source(), start.target()
    mask = (
        WaitKMask(options.wait_k, source, target.vocabulary) if options.wait_k is not None else None
    )
    network = start.network(recipe.dropout).to(options.device)
    set_lower_dropout(network, recipe.lower_dropout)
    peers = find_peers(device=options.device)
    torch.manual_seed(recipe.seed + peers.rank)
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

    budget = Budget(
        minutes=options.minutes, wall_minutes=options.wall_minutes, patience=options.patience
    )
    text = TextData(options.corpus, recipe.text, source, target)
    folder = RunFolder(options.run)
    for begun in (options.run, *([options.after.parent] if options.after else [])):
        check_start(begun, start.digest())
    if peers.rank == 0:
        folder.keep_start(start.digest())
        if options.after:
            folder.begin_after(options.after)
    # Nobody looks for the state before the first process has put it there.
    peers.largest([0.0])
    Trainer(network, data, text, recipe, budget, folder, measure, peers, mask).run()
    peers.leave()


def _chosen(clips: list[DevClip], language: str) -> list[DevClip]:
    """Return the first clips with a translation; all are without where the corpus has none."""
    return (with_translation(clips, language) or clips)[:_MEASURED_CLIPS]


def _export(options: argparse.Namespace) -> None:
    run, start = RunFolder(options.run), _start(options)
    check_start(options.run, start.digest())
    if options.milestones:
        for path in run.milestones():
            write(start, average_snapshots([path]), options.to / path.stem, torch.float16)
        return
    recipe = _stage(options)
    torch.manual_seed(recipe.seed)
    target, source = start.target(), start.source()
    data = TrainingData(options.corpus, recipe, source, target, start.normalisation)
    snapshots = run.best_snapshots(options.snapshots)
    export(start, snapshots, options.to, data, recipe, options.start_share)


def _teach(options: argparse.Namespace) -> None:
    recipe = TeacherRecipe()
    torch.manual_seed(recipe.seed)
    start = _start(options)
    text = TextData(options.corpus, HEARD_EXACTLY, start.source(), start.target())
    teacher = TextTeacher(start.config, recipe).to(options.device)
    TeacherRun(teacher, text, recipe, Budget(minutes=options.minutes), options.teacher).run()


def _distil(options: argparse.Namespace) -> None:
    start = _start(options)
    teacher: OwnTeacher | TextTeacher
    if options.teacher is None:
        teacher = OwnTeacher(start.network(dropout=0.0))
    else:
        teacher = TextTeacher(start.config, TeacherRecipe())
        content = torch.load(options.teacher, map_location="cpu", weights_only=True)
        teacher.load_state_dict(content["teacher"])
    teacher.to(options.device).eval()
    distil(
        options.corpus,
        teacher,
        start.source(),
        start.target(),
        spoken_only=options.spoken_only,
    )


def _stage(options: argparse.Namespace) -> TrainingRecipe:
    number = options.stage or (2 if options.start else 1)
    return (FIRST_STAGE, SECOND_STAGE, THIRD_STAGE)[number - 1]


def _recipe(options: argparse.Namespace) -> TrainingRecipe:
    """Return a stage's recipe with what the run is to do differently.

    Raises:
        ValueError: an option is out of its range.
    """
    recipe = _stage(options)
    if options.fine_tune:
        recipe = fine_tuned(recipe)
    if options.peak_rate is not None:
        recipe = paced(recipe, options.peak_rate)
    if options.distilled:
        recipe = distilled(recipe)
    if options.truncated is not None:
        recipe = truncated(recipe, options.truncated)
    return recipe


def _start(options: argparse.Namespace) -> TrainingStart:
    if options.start:
        return TrainingStart.from_checkpoint(options.start)
    return TrainingStart.fresh(options.corpus)


_STEPS = {
    "prepare": _prepare,
    "grow": _grow,
    "respell": _respell,
    "train": _train,
    "export": _export,
    "teach": _teach,
    "distil": _distil,
}

if __name__ == "__main__":
    main()
