"""The command line as a whole, and which commands there are."""

import argparse
import sys
from importlib.metadata import EntryPoint, version

import pytest

from earvoice.cli.__main__ import main
from earvoice.cli.command import Command, CommandError, require_extra
from earvoice.cli.command_line import find_commands, load_command, summary_of
from earvoice.gateway.access import Gatekeeper
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.errors import PermissionDeniedError


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("translate", "none.wav"), 3, "none.wav: no such file"),
        (("translate", "-", "--policy", "often"), 2, "policy = 'often' is not allowed"),
        (("translate", "-", "--alpha", "1"), 2, "--alpha needs --policy"),
        (("translate", "-", "--interim"), 2, "--interim needs a terminal"),
        (("translate", "-", "--stage-timings"), 2, "--stage-timings needs --format jsonl"),
        (("translate", "-", "--transcript", "--format", "vtt"), 2, "needs --format text or jsonl"),
        (("translate", "none.wav", "--transcript", "--format", "txt"), 3, "no such file"),
        (("translate", "-", "--mark-below", "0.5"), 2, "need --format srt, vtt, json"),
        (("translate", "-", "-"), 2, "only once"),
        (("translate", "-", "--to", "de,,es"), 2, "--to de,,es is not allowed"),
        (("translate", "-", "--to", "de", "--to", "de"), 2, "tags, each once"),
        (("translate", "-", "--to", "de,es", "--format", "srt"), 2, "is of one language"),
        (("translate", "a", "b", "--format", "vtt"), 2, "is of one recording"),
        (("translate", "-", "--server", "h:99999"), 2, "port 99999 is not allowed"),
        (("models", "--server", "h:99999"), 2, "port 99999 is not allowed"),
        (("models", "--server", "h"), 2, "--server h has no port; allowed: HOST:PORT"),
        (("models", "--tls"), 2, "TLS needs a --server"),
        (("models", "--token-file", "none"), 2, "--token-file needs a --server"),
        (
            ("models", "--server", "h:1", "--tls", "--token-file", "none"),
            2,
            "--token-file none: no such file",
        ),
        (("translate", "-", "--rate", "1"), 2, "sample_rate_hz = 1 is not allowed"),
        (("demo", "--audio", "none.wav"), 3, "none.wav: no such file"),
        (("gateway", "token", "read", "--stream", "a b"), 2, "--stream = 'a b' is not allowed"),
        (("gateway", "token", "read"), 2, "EARVOICE_GATEWAY_TOKEN_KEY is not set"),
        (("demo", "--policy", "often"), 2, "policy = 'often' is not allowed"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_started(capsys, arguments, status, words):
    """No service is started for a command that cannot succeed."""
    assert main(arguments) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dance",), "invalid choice: 'dance'"),
        ((), "COMMAND"),
        (("serve", "x"), "choose from"),
        (
            ("translate", "-", "--mark-below", "2"),
            "--mark-below: '2' is not allowed; allowed: 0 to 1",
        ),
        (("translate", "-", "--mark-below", "nan"), "'nan' is not allowed"),
        (
            ("translate", "-", "--history", "some"),
            "--history: 'some' is not allowed; allowed: 1 to 200, sentence",
        ),
        (("translate", "-", "--history", "99999999999"), "'99999999999' is not allowed"),
        (("translate", "-", "--segment-ms", "100"), "'100' is not allowed; allowed: 200 to 10000"),
        (("translate", "-", "--initial-wait-ms", "-1"), "'-1' is not allowed; allowed: 0 to 10000"),
        (("translate", "-", "--target-lag-ms", "100"), "allowed: 500 to 20000"),
        (("translate", "-", "--min-confidence", "2"), "'2' is not allowed; allowed: 0 to 1"),
        (("gateway", "token", "read", "--minutes", "0"), "--minutes: '0' is not allowed"),
    ],
)
def test_wrong_usage_names_the_choices(capsys, arguments, words):
    """In a line, which says where to read more."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert "--help" in told


def test_a_token_lets_its_bearer_into_the_stream_that_it_names(capsys, monkeypatch):
    """Signed with the gateway's key, for what was asked for and nothing else."""
    key = "k" * 32
    monkeypatch.setenv("EARVOICE_GATEWAY_TOKEN_KEY", key)
    assert main(["gateway", "token", "read", "--stream", "hall", "--minutes", "5"]) == 0
    token = capsys.readouterr().out.strip()
    gatekeeper = Gatekeeper(GatewaySettings(token_key=key))
    assert gatekeeper.admit(token, "read").stream == "hall"
    with pytest.raises(PermissionDeniedError):
        gatekeeper.admit(token, "speak")


def test_the_version_is_told(capsys):
    """That of the distribution."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"earvoice {version('earvoice')}\n")


def test_help_describes_every_command_in_its_own_words(capsys):
    """Those of other packages too, although none of them is imported."""
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "added by" not in told
    assert "score print latency and quality of the translations in a log" in told


def test_help_tells_the_exit_statuses(capsys):
    """Scripts are written from it."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert "75   retry" in output
    assert "translate" in output


def entry(value):
    return EntryPoint("dance", value, "earvoice.commands")


@pytest.mark.parametrize("name", ["up", "live", "serve", "translate", "models", "demo"])
def test_our_commands_load(name):
    """Each declares its arguments."""
    command = load_command(find_commands()[name])
    assert isinstance(command, Command)
    command.add_arguments(argparse.ArgumentParser())


def test_a_stranger_without_words_of_its_own_is_named_by_its_module():
    """Whether it can be found or not."""
    assert summary_of(entry("json:COMMAND")) == "added by json"
    assert summary_of(entry("no_such_module:COMMAND")) == "added by no_such_module"


def test_a_missing_extra_is_named():
    """The message is the command that helps."""
    with pytest.raises(
        CommandError, match=r"dance needs no_such_module.*pip install 'earvoice\[lab\]'"
    ):
        load_command(entry("no_such_module:COMMAND [lab]"))


def test_a_stranger_is_refused():
    """An entry point that names something else is told, not called."""
    with pytest.raises(CommandError, match="is not a command but a function"):
        load_command(entry("json:dumps"))


def test_an_extra_is_checked_without_importing_it():
    """Looking for torch must not cost its import."""
    require_extra("policy")
    if "torch" not in sys.modules:
        try:
            require_extra("encoder")
        except CommandError as error:
            assert "earvoice[encoder]" in str(error)  # noqa: PT017 - torch may or may not be there
        assert "torch" not in sys.modules
