"""Writes the page, the figure and the table of all numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from earvoice.claims.claim import judge, judge_trainings
from earvoice.claims.experiment import Experiment
from earvoice.claims.experiment_reader import LOG_FILE, SETTINGS_FOLDER, read_experiment
from earvoice.claims.facts import Facts
from earvoice.claims.figure import draw_curves
from earvoice.claims.page import write_page
from earvoice.claims.setting_table import list_numbers
from earvoice.claims.training_study import TrainingFolders, read_study
from earvoice.evaluation.quality import score_quality
from earvoice.evaluation.scoring import ScoringOptions, read_instances

FIGURE_NAME = "results.svg"
TABLE_NAME = "results.tsv"


def write_report(folders: Sequence[Path], training_folders: TrainingFolders, page: Path) -> None:
    """Write the page, and beside it the figure and the table.

    Args:
        folders: results of each checkpoint, in the page's order.
        training_folders: results of checkpoints whose trainings are compared.
        page: the file to write.

    Raises:
        LogError: a log cannot be read.
        OSError: a folder has no facts, or the page cannot be written.
        ValueError: facts that cannot be read, a folder without any result, or trainings that
            cannot be compared.
    """
    read = [read_experiment(folder) for folder in folders]
    experiments, facts = [experiment for experiment, _ in read], [fact for _, fact in read]
    study = read_study(training_folders)
    draw_curves(experiments, page.parent / FIGURE_NAME)
    _write_table([*experiments, *study.checkpoints], page.parent / TABLE_NAME)
    judgements = [judge(experiment) for experiment in experiments]
    trainings = study, judge_trainings(study)
    signature = _signature(folders[0], experiments[0], facts[0])
    text = write_page(experiments, facts, judgements, trainings, signature, FIGURE_NAME)
    page.write_text(text, encoding="utf8")


def _write_table(experiments: Sequence[Experiment], path: Path) -> None:
    rows = [
        list_numbers(experiment, setting)
        for experiment in experiments
        for setting in experiment.results
    ]
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _signature(folder: Path, experiment: Experiment, facts: Facts) -> str:
    """Return sacreBLEU's signature, as it scores the first log."""
    setting = next(iter(experiment.results))
    path = folder / SETTINGS_FOLDER / setting.name / LOG_FILE
    log, language = read_instances(path, ScoringOptions(language=facts.target_language))
    hypotheses = [instance.prediction for instance in log.instances]
    references = [instance.reference or "" for instance in log.instances]
    return score_quality(hypotheses, references, language).bleu_signature
