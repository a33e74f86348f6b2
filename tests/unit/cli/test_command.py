"""Exit statuses, and signals that end a command in good order."""

import asyncio
import os
import signal

import pytest

from earvoice.cli.command import ExitCode, SignalledError, exit_code_of, run_async
from earvoice.client.errors import AudioSourceError, ServerFaultError, ServerUnavailableError


def test_each_advice_has_its_status():
    """A script can tell retry, resume and give up apart."""
    passing = ServerUnavailableError("x")
    assert exit_code_of(passing) is ExitCode.RETRY
    passing.session_started = True
    assert exit_code_of(passing) is ExitCode.RESUME
    assert exit_code_of(ServerFaultError("x")) is ExitCode.GIVE_UP
    assert exit_code_of(AudioSourceError("x")) is ExitCode.INPUT


def test_a_command_returns_its_status():
    """Without a signal nothing happens."""

    async def command(interruption):
        return 7

    assert run_async(command) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_command_clean_up(number):
    """It is cancelled, and the signal is told afterwards."""
    cleaned = []

    async def command(interruption):
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with pytest.raises(SignalledError) as caught:
        run_async(command)
    assert caught.value.signal_number == number
    assert cleaned == [True]


def test_the_first_interrupt_can_do_something_else():
    """Ctrl-C ends the microphone and lets the last words come."""

    async def command(interruption):
        stopped = asyncio.Event()
        interruption.call_instead(stopped.set)
        os.kill(os.getpid(), signal.SIGINT)
        await stopped.wait()
        return 0

    assert run_async(command) == 0
