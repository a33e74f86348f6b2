"""Settings of other families that are damaged or do not fit are refused, whatever they break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from earvoice.models.errors import CheckpointError, ModelConfigError, ModelError

pytest.importorskip("transformers", reason="the extra 'hf' is not installed: other families")
pytestmark = pytest.mark.torch

CONFIG = "config.json"
GENERATION = "generation_config.json"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, target_model: bytes) -> dict[str, Path]:
    from tests.models.tiny_families import speech_to_text, whisper

    folder = tmp_path_factory.mktemp("families")
    return {
        "speech_to_text": speech_to_text(folder / "s2t", target_model),
        "whisper": whisper(folder / "whisper"),
    }


def _load(path: Path) -> None:
    from earvoice.models.wrapped.loading import load_wrapped

    load_wrapped(
        path,
        dtype=torch.float32,
        device=torch.device("cpu"),
        source_language="de",
        target_language="en",
    )


@pytest.mark.parametrize(
    ("family", "file", "field", "value"),
    [
        ("speech_to_text", CONFIG, "d_model", "wide"),
        ("speech_to_text", CONFIG, "encoder_attention_heads", 0),
        ("whisper", GENERATION, "eos_token_id", []),
        ("whisper", GENERATION, "task_to_id", ["translate"]),
        ("whisper", GENERATION, "lang_to_id", ["<|de|>"]),
        ("whisper", GENERATION, "suppress_tokens", "none"),
    ],
)
def test_settings_of_other_types_are_refused(
    tmp_path: Path, checkpoints: dict[str, Path], family: str, file: str, field: str, value: object
) -> None:
    """The error names the checkpoint, and is ours."""
    path = shutil.copytree(checkpoints[family], tmp_path / "spoilt")
    settings = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**settings, field: value}))
    with pytest.raises(CheckpointError, match="checkpoint spoilt is not usable"):
        _load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("decoder_start_token_id", 99_999),
        ("eos_token_id", 99_999),
        ("suppress_tokens", [99_999]),
        ("begin_suppress_tokens", [99_999]),
        ("task_to_id", {"translate": 99_999}),
    ],
)
def test_tokens_must_be_in_the_vocabulary(
    tmp_path: Path, checkpoints: dict[str, Path], field: str, value: object
) -> None:
    """A token that the network does not know is refused at load, not met in a session."""
    path = shutil.copytree(checkpoints["whisper"], tmp_path / "spoilt")
    settings = json.loads((path / GENERATION).read_text())
    (path / GENERATION).write_text(json.dumps({**settings, field: value}))
    with pytest.raises(ModelConfigError, match=r"names token 99999; allowed: 0 to \d+"):
        _load(path)


@pytest.mark.parametrize("file", [GENERATION, "tokenizer_config.json", "preprocessor_config.json"])
def test_files_of_another_form_are_refused(
    tmp_path: Path, checkpoints: dict[str, Path], file: str
) -> None:
    """A list where an object is expected."""
    path = shutil.copytree(checkpoints["speech_to_text"], tmp_path / "spoilt")
    (path / file).write_text("[]")
    with pytest.raises(CheckpointError, match="checkpoint spoilt is not usable"):
        _load(path)


def test_nested_configurations_are_refused(tmp_path: Path) -> None:
    """Brackets without end are no configuration."""
    (tmp_path / CONFIG).write_text('{"model_type": "whisper", "a": ' + "[" * 100_000)
    with pytest.raises(ModelError, match="is not readable"):
        _load(tmp_path)
