"""The data configuration that stands beside a checkpoint of the papers' code."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.vocabulary import SPECIALS, Vocabulary


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
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            message = f"{self._path.name} is not readable YAML ({error})"
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
        transforms = self._values.get("transforms", {}).get("*", [])
        if transforms == []:
            return FeatureNormalisation.identity()
        if transforms != ["global_cmvn"]:
            message = f"{self._path.name} transforms are {transforms}; allowed: ['global_cmvn']"
            raise CheckpointError(message)
        path = self._file("global_cmvn", "stats_npz_path")
        try:
            with np.load(path, allow_pickle=False) as statistics:
                mean, deviation = statistics["mean"], statistics["std"]
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            message = f"{path.name} does not hold mean and std ({error})"
            raise CheckpointError(message) from error
        return FeatureNormalisation(
            torch.from_numpy(mean.astype(np.float32)),
            torch.from_numpy(deviation.astype(np.float32)),
        )

    def digest(self, checkpoint: Path) -> str:
        """SHA-256 in hexadecimal over the checkpoint and every file read for it, by name."""
        total = hashlib.sha256()
        for path in sorted({*self._used, checkpoint}, key=lambda path: path.name):
            with path.open("rb") as file:
                total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()

    def _dictionary(self, field: str) -> tuple[str, ...]:
        """The dictionary's symbols: one `symbol count` a line, behind the four specials."""
        text = self._file(field).read_text(encoding="utf-8")
        return (*SPECIALS, *(line.rsplit(" ", 1)[0] for line in text.splitlines() if line))

    def _file(self, *fields: str) -> Path:
        name: Any = self._values
        for field in fields:
            name = name.get(field) if isinstance(name, dict) else None
        # Only the name counts: training left absolute paths of another machine.
        path = self._folder / Path(name).name if isinstance(name, str) else None
        if path is None or not path.is_file():
            message = f"{self._path.name} {'.'.join(fields)} is {name!r}; allowed: a file beside it"
            raise CheckpointError(message)
        self._used.add(path)
        return path
