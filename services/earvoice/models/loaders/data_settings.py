"""The data configuration that stands beside a checkpoint of the papers' code."""

import hashlib
import reprlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.vocabulary import SPECIALS, Vocabulary

MAX_STATISTICS_BYTES = 2**20
"""Two rows of 80 numbers take a thousandth of it; a compressed file may claim to be any size."""


class DataSettings:
    """The data configuration beside a checkpoint, and the files it names."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint.parent
        candidates = sorted(self._folder.glob("config*.yaml"))
        preferred = [path for path in candidates if path.name == "config_simul.yaml"] or candidates
        if len(preferred) != 1:
            message = (
                f"beside {checkpoint.name} stand {[path.name for path in candidates]}; "
                "allowed: one config*.yaml, or config_simul.yaml among them"
            )
            raise CheckpointError(message)
        self._path = preferred[0]
        try:
            self._values = yaml.safe_load(self._path.read_text(encoding="utf-8"))
        except Exception as error:
            # YAML breaks in many ways: a date that is none, for one, is a ValueError.
            message = f"{self._path.name} is not readable YAML ({type(error).__name__}: {error})"
            raise CheckpointError(message) from error
        if not isinstance(self._values, dict):
            message = f"{self._path.name} holds {type(self._values).__name__}; allowed: a mapping"
            raise CheckpointError(message)
        self._used = {self._path}

    def vocabulary(self, tokenizer_field: str, dictionary_field: str) -> Vocabulary:
        """A SentencePiece model that must agree, id by id, with the dictionary.

        Raises:
            CheckpointError: a file is missing, or the ids differ.
            VocabularyError: the SentencePiece model is not usable.
        """
        pieces = self._dictionary(dictionary_field)
        model = self._file(tokenizer_field, "sentencepiece_model").read_bytes()
        own = Vocabulary(model).pieces
        if pieces[: len(own)] != own:
            differing = next(
                (i for i, pair in enumerate(zip(own, pieces, strict=False)) if pair[0] != pair[1]),
                len(pieces),
            )
            message = (
                f"{self._path.name} {dictionary_field}: id {differing} differs from the "
                "SentencePiece model; allowed: equal ids"
            )
            raise CheckpointError(message)
        return Vocabulary(model, pieces[len(own) :])

    def normalisation(self) -> FeatureNormalisation:
        """The global statistics, the only transform of features that is understood.

        Raises:
            CheckpointError: another transform is asked for, or the statistics are not usable.
        """
        transforms = self._values.get("transforms") or {}
        if isinstance(transforms, dict):
            # As the papers' code chooses: what is for evaluation alone comes first.
            chosen = transforms.get("_eval")
            transforms = (transforms.get("*") if chosen is None else chosen) or []
        if transforms == []:
            return FeatureNormalisation.identity()
        if transforms != ["global_cmvn"]:
            told = reprlib.repr(transforms)
            message = f"{self._path.name} transforms are {told}; allowed: ['global_cmvn']"
            raise CheckpointError(message)
        return FeatureNormalisation(*_statistics(self._file("global_cmvn", "stats_npz_path")))

    def digest(self, checkpoint: Path) -> str:
        """SHA-256 in hexadecimal over the checkpoint and every file read for it, by name."""
        total = hashlib.sha256()
        for path in sorted({*self._used, checkpoint}, key=lambda path: path.name):
            with path.open("rb") as file:
                total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()

    def _dictionary(self, field: str) -> tuple[str, ...]:
        """The dictionary's symbols: one `symbol count` a line, behind the four specials."""
        path = self._file(field)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path.name} is not UTF-8 ({error})") from error
        # Not splitlines(): it ends lines at characters that a symbol may have.
        return (*SPECIALS, *(line.rsplit(" ", 1)[0] for line in text.split("\n") if line))

    def _file(self, *fields: str) -> Path:
        name: Any = self._values
        for field in fields:
            name = name.get(field) if isinstance(name, dict) else None
        # Only the name counts: training left absolute paths of another machine.
        path = self._folder / Path(name).name if isinstance(name, str) else None
        if path is None or not path.is_file():
            told = f"{self._path.name} {'.'.join(fields)} is {reprlib.repr(name)}"
            raise CheckpointError(f"{told}; allowed: a file beside it")
        self._used.add(path)
        return path


def _statistics(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation, float32, of a `.npz` file.

    Raises:
        CheckpointError: it holds no such arrays of real numbers, or too much.
    """
    try:
        _check_size(path)
        with np.load(path, allow_pickle=False) as statistics:
            # Of complex numbers a part would be lost, and letters are none.
            mean, deviation = (
                statistics[name].astype(np.float32, casting="same_kind") for name in ("mean", "std")
            )
    except CheckpointError:
        raise
    except Exception as error:
        # What is damaged raises almost any built-in exception, according to where it breaks.
        told = f"{type(error).__name__}: {error}"
        message = f"{path.name} does not hold mean and std ({told})"
        raise CheckpointError(message) from error
    return torch.from_numpy(mean), torch.from_numpy(deviation)


def _check_size(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size_bytes = sum(item.file_size for item in archive.infolist())
    if size_bytes > MAX_STATISTICS_BYTES:
        message = f"{path.name} unpacks to {size_bytes} bytes; allowed: {MAX_STATISTICS_BYTES}"
        raise CheckpointError(message)
