"""What the environment may say."""

import subprocess
import sys

import pytest

from earvoice.decoder.settings import DecoderSettings
from earvoice.runtime.settings import SettingsError, load_settings


def test_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable nobody reads is an error at start."""
    monkeypatch.setenv("EARVOICE_DECODER_MAX_TOKEN", "5")
    with pytest.raises(SettingsError, match="EARVOICE_DECODER_MAX_TOKENS"):
        load_settings(DecoderSettings)


def test_value_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have ranges."""
    monkeypatch.setenv("EARVOICE_DECODER_TORCH_THREADS", "0")
    with pytest.raises(SettingsError, match="TORCH_THREADS"):
        load_settings(DecoderSettings)


def test_session_imports_neither_torch_nor_grpc() -> None:
    """The protocol and the engine can be tested, and configured, without both."""
    program = (
        "import sys, earvoice.decoder.stream, earvoice.decoder.engine, earvoice.decoder.settings;"
        "sys.exit(bool({'torch', 'grpc'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
