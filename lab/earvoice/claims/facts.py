"""What one must know to compare a checkpoint's results with others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FACTS_FILE = "facts.json"


@dataclass(frozen=True)
class Facts:
    """How the results in a folder were made.

    Attributes:
        label: short name for tables.
        model_name: as the model's config has it.
        model_hash: SHA-256 over the checkpoint's contents.
        policy_defaults: the model's calibrated parameters.
        layers: of the decoder.
        heads: of each of its layers.
        target_language: BCP-47.
        inputs: how many the test set has.
        audio_s: their length together.
        versions: of the tools, by name.
        processor: that computed.
        note: what a reader should know of the checkpoint.
    """

    label: str
    model_name: str
    model_hash: str
    policy_defaults: dict[str, object]
    layers: int
    heads: int
    target_language: str
    inputs: int
    audio_s: float
    versions: dict[str, str]
    processor: str
    note: str = ""

    def write(self, folder: Path) -> None:
        """Write them into the folder of the results."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=2)
        (folder / FACTS_FILE).write_text(text + "\n", encoding="utf8")

    @classmethod
    def read(cls, folder: Path) -> Facts:
        """Return those of a folder.

        Raises:
            OSError: there are none.
            ValueError: they cannot be read.
        """
        text = (folder / FACTS_FILE).read_text(encoding="utf8")
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"{folder / FACTS_FILE}: {error}") from error
