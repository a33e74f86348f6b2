"""Checkpoints that differ in how they were trained: what claims 13 to 15 compare, and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from earvoice.claims.experiment import Experiment
from earvoice.claims.experiment_reader import WORDS_FILE, read_training
from earvoice.claims.facts import Facts


@dataclass(frozen=True)
class TrainingFolders:
    """Folders of results, as `run_plan` writes them; empty where nothing was run.

    Attributes:
        snapshots: of one training, the youngest first.
        distilled: a training without a teacher's translations, and one with them.
        wait_k: an offline training, then those with wait-k masks.
        truncated: a training on whole inputs, and one on truncated ones too.
    """

    snapshots: Sequence[Path] = ()
    distilled: Sequence[Path] = ()
    wait_k: Sequence[Path] = ()
    truncated: Sequence[Path] = ()

    @property
    def families(self) -> tuple[Sequence[Path], ...]:
        """What is compared with each other."""
        return self.snapshots, self.distilled, self.wait_k, self.truncated


@dataclass(frozen=True)
class TrainingStudy:
    """Results of checkpoints; those of a family are about the same inputs.

    Attributes:
        snapshots: of one training, the youngest first.
        distilled: a training without a teacher's translations, and one with them.
        wait_k: an offline training, then those with wait-k masks.
        truncated: a training on whole inputs, and one on truncated ones too.
        facts: of each, by its label.
    """

    snapshots: Sequence[Experiment] = ()
    distilled: Sequence[Experiment] = ()
    wait_k: Sequence[Experiment] = ()
    truncated: Sequence[Experiment] = ()
    facts: Mapping[str, Facts] = field(default_factory=dict)

    @property
    def checkpoints(self) -> list[Experiment]:
        """Every checkpoint once: one may be in several families."""
        every = chain(self.snapshots, self.distilled, self.wait_k, self.truncated)
        return list({experiment.label: experiment for experiment in every}.values())


def read_study(folders: TrainingFolders) -> TrainingStudy:
    """Return the results of all families.

    Raises:
        LogError: a log cannot be read, or has another number of inputs.
        OSError: a folder has no facts.
        ValueError: facts that cannot be read, a folder without results, a label that two
            checkpoints have, or a family with several test sets.
    """
    for family in folders.families:
        _check_inputs(family)
    read = {folder: read_training(folder) for folder in chain(*folders.families)}
    _check_labels({folder: facts.label for folder, (_, facts) in read.items()})
    snapshots, distilled, wait_k, truncated = (
        [read[folder][0] for folder in family] for family in folders.families
    )
    facts = {fact.label: fact for _, fact in read.values()}
    return TrainingStudy(snapshots, distilled, wait_k, truncated, facts)


def _check_inputs(family: Sequence[Path]) -> None:
    """Refuse results that are not paired."""
    contents = [(folder / WORDS_FILE).read_bytes() for folder in family]
    for folder, content in zip(family, contents, strict=True):
        if content != contents[0]:
            raise ValueError(f"{folder} has other inputs; allowed: those of {family[0]}")


def _check_labels(labels: Mapping[Path, str]) -> None:
    known: dict[str, Path] = {}
    for folder, label in labels.items():
        if known.setdefault(label, folder) != folder:
            raise ValueError(f"{folder} has the label {label!r} of {known[label]}: must be unique")
