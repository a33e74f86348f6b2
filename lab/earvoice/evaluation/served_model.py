"""What a replay must know of a model when every hypothesis is there: kept beside a recording."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from earvoice.decoder.model import ServedModel, TokenTable
from earvoice.evaluation.recording import RecordingError
from earvoice.runtime.model_facts import ModelFacts

MODEL_FILE = "model.json"
# Bytes of a token need not be text of their own; each byte is a character here.
_ENCODING = "latin-1"


def write_served_model(folder: Path, model: ServedModel) -> None:
    """Write facts, sizes and tokens of a model."""
    tokens = model.tokens
    content = {
        "facts": asdict(model.facts),
        "language_tokens": model.language_tokens,
        "dimension": model.dimension,
        "head_count": model.head_count,
        "texts": [text.decode(_ENCODING) for text in tokens.texts],
        "starts_word": tokens.starts_word,
        "end_token": tokens.end_token,
    }
    (folder / MODEL_FILE).write_text(json.dumps(content) + "\n", encoding="utf8")


def read_served_model(folder: Path) -> ServedModel:
    """Return what `write_served_model` wrote.

    Raises:
        RecordingError: it is missing or damaged.
    """
    path = folder / MODEL_FILE
    try:
        content = json.loads(path.read_text(encoding="utf8"))
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content["facts"].items()
        }
        return ServedModel(
            ModelFacts(**facts),
            {tag: tuple(tokens) for tag, tokens in content["language_tokens"].items()},
            content["dimension"],
            content["head_count"],
            TokenTable(
                tuple(text.encode(_ENCODING) for text in content["texts"]),
                tuple(content["starts_word"]),
                content["end_token"],
            ),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingError(f"{path} is no description of a model: {error}") from error
