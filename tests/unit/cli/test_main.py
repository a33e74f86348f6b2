"""The command line, as far as it needs no server."""

import pytest

from earvoice.cli.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("translate", "none.wav"), 3, "none.wav: no such file"),
        (("translate", "-", "--policy", "often"), 2, "policy = 'often' is not allowed"),
        (("translate", "-", "--alpha", "1"), 2, "--alpha needs --policy"),
        (("translate", "-", "--interim"), 2, "--interim needs a terminal"),
        (("translate", "-", "--stage-timings"), 2, "--stage-timings needs --format jsonl"),
        (("translate", "-", "-"), 2, "only once"),
        (("translate", "-", "--rate", "1"), 2, "sample_rate_hz = 1 is not allowed"),
        (("demo", "--audio", "none.wav"), 3, "none.wav: no such file"),
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
    [(("dance",), "invalid choice: 'dance'"), ((), "COMMAND"), (("serve", "x"), "choose from")],
)
def test_wrong_usage_names_the_choices(capsys, arguments, words):
    """As argparse does."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_help_tells_the_exit_statuses(capsys):
    """Scripts are written from it."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert "75   retry" in output
    assert "translate" in output
