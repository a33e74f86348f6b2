"""TLS and tokens on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from earvoice.cli.command import CommandError
from earvoice.cli.server_choice import TOKEN_VARIABLE, add_server_arguments
from earvoice.cli.server_choice import open_client as open_unnamed
from earvoice.runtime.tls import TlsFileError

REMOTE = "earvoice.example:50051"


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    """Whatever the shell that runs the tests has."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_server_arguments(parser)
    return parser.parse_args(arguments)


async def open_client(*arguments: str, address: str = REMOTE) -> None:
    await open_unnamed(address, parse(*arguments)).close()


async def test_a_token_does_not_leave_in_the_clear(monkeypatch, tmp_path: Path):
    """From a file or from the environment; over TLS, and to this machine, it does."""
    file = tmp_path / "token"
    file.write_text("a-token\n")
    with pytest.raises(CommandError, match=f"{REMOTE} only over TLS.*--ca-file"):
        await open_client("--server", REMOTE, "--token-file", str(file))
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token")
    with pytest.raises(CommandError, match="only over TLS"):
        await open_client("--server", REMOTE)
    await open_client("--server", REMOTE, "--tls")
    await open_client("--server", "127.0.0.1:1", address="127.0.0.1:1")


async def test_a_certificate_that_is_missing_is_named(tmp_path: Path):
    """Before anything is sent."""
    with pytest.raises(TlsFileError, match="nowhere"):
        await open_client("--server", REMOTE, "--ca-file", str(tmp_path / "nowhere.pem"))
    with pytest.raises(TlsFileError, match="given together"):
        await open_client("--server", REMOTE, "--certificate", str(tmp_path / "ours.pem"))
