"""What every command is told that tries a model on a set and writes into its config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_model_trial_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--model``, ``--source``, ``--target`` and ``--to``."""
    parser.add_argument(
        "--model", metavar="DIR", type=Path, required=True, help="checkpoint; its config is changed"
    )
    parser.add_argument(
        "--source", metavar="FILE", type=Path, required=True, help="paths of recordings, one a line"
    )
    parser.add_argument(
        "--target", metavar="FILE", type=Path, required=True, help="their translations, one a line"
    )
    parser.add_argument("--to", metavar="TAG", help="target language (the model's first)")
