"""The advice that an error gives."""

import pytest

from earvoice.client.errors import (
    Advice,
    AudioSourceError,
    InvalidRequestError,
    ServerBusyError,
    ServerUnavailableError,
    TranslationError,
)


@pytest.mark.parametrize("kind", [InvalidRequestError, AudioSourceError, ServerBusyError])
def test_final_errors_are_given_up(kind):
    """What will not pass is given up, whether or not the session had begun."""
    error = kind("no")
    assert error.advice is Advice.GIVE_UP
    error.session_started = True
    assert error.advice is Advice.GIVE_UP


def test_passing_errors_are_retried_before_and_resumed_after_the_start():
    """What may pass is retried until the session has begun, and resumed from then on."""
    error = ServerUnavailableError("gone")
    assert error.advice is Advice.RETRY
    error.session_started = True
    assert error.advice is Advice.RESUME


def test_an_explicit_passing_outranks_the_class():
    """The server's reason decides where it says something."""
    assert ServerBusyError("full", passing=True).advice is Advice.RETRY
    assert ServerUnavailableError("odd", passing=False).advice is Advice.GIVE_UP


def test_an_error_carries_its_message_and_facts():
    """A person reads the message, a program the fields."""
    error = TranslationError("m", code="C", reason="R", retry_after_s=1.5, metadata={"field": "x"})
    assert str(error) == "m"
    assert (error.code, error.reason, error.retry_after_s) == ("C", "R", 1.5)
    assert error.metadata == {"field": "x"}
    assert (error.acknowledged_samples, error.resume_token) == (0, b"")
