"""Exit statuses of failed translations."""

from earvoice.cli.exit_code import ExitCode, exit_code_of
from earvoice.client.errors import AudioSourceError, ServerFaultError, ServerUnavailableError


def test_each_advice_has_its_status():
    """A script can tell retry, resume and give up apart."""
    passing = ServerUnavailableError("x")
    assert exit_code_of(passing) is ExitCode.RETRY
    passing.session_started = True
    assert exit_code_of(passing) is ExitCode.RESUME
    assert exit_code_of(ServerFaultError("x")) is ExitCode.GIVE_UP
    assert exit_code_of(AudioSourceError("x")) is ExitCode.INPUT
