"""What can go wrong, and gRPC's statuses as our errors."""

import re
from pathlib import Path

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from earvoice.api.v1 import error_reason_pb2
from earvoice.client.errors import (
    ERROR_BY_STATUS,
    PASSING_BY_REASON,
    Advice,
    AudioSourceError,
    InvalidRequestError,
    ServerBusyError,
    ServerFaultError,
    ServerUnavailableError,
    SessionEndedError,
    TranslationError,
    error_class,
    translate_failure,
)
from earvoice.runtime import errors as server_errors
from earvoice.runtime.status import status_proto


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


DETAILS_KEY = "grpc-status-details-bin"
DOCUMENT = Path(__file__).parents[3] / "docs" / "errors.md"


def failure_of(error: server_errors.EarvoiceError) -> AioRpcError:
    by_number = {code.value[0]: code for code in grpc.StatusCode}
    status = status_proto(error)
    metadata = Metadata((DETAILS_KEY, status.SerializeToString()))
    return AioRpcError(by_number[status.code], Metadata(), metadata, details=status.message)


def test_every_status_is_mapped():
    """A status that grpc knows and this client does not would fail here."""
    assert set(ERROR_BY_STATUS) == set(grpc.StatusCode) - {grpc.StatusCode.OK}


def test_every_reason_is_judged():
    """A reason that the server may send and this client has not judged would fail here."""
    names = {name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys()}  # noqa: SIM118 - no dict
    assert set(PASSING_BY_REASON) == names - {"UNSPECIFIED"}


@pytest.mark.parametrize("status", list(ERROR_BY_STATUS))
def test_a_status_of_the_transport_becomes_its_class(status):
    """Without ErrorInfo there is no reason, and the class decides the advice."""
    error = translate_failure(AioRpcError(status, Metadata(), Metadata(), details="x"))
    assert type(error) is error_class(status, "")
    assert (error.message, error.code, error.reason) == ("x", status.name, "")
    passing = isinstance(error, ServerUnavailableError | SessionEndedError)
    assert error.advice is (Advice.RETRY if passing else Advice.GIVE_UP)


@pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_a_broken_connection_is_no_fault_of_the_server(status):
    """What gRPC says of a reset in mid-message, or a proxy of a server that died, may pass."""
    assert error_class(status, "") is ServerUnavailableError
    assert error_class(status, "INTERNAL") is ServerFaultError


def test_reason_metadata_and_retry_are_read():
    """ErrorInfo and RetryInfo reach the caller."""
    full = server_errors.SessionLimitError("16 of 16", retry_after_ms=2500)
    error = translate_failure(failure_of(full))
    assert (error.code, error.reason, error.retry_after_s) == (
        "RESOURCE_EXHAUSTED",
        "SESSION_LIMIT",
        2.5,
    )
    assert error.advice is Advice.RETRY
    wrong = server_errors.InvalidFieldError("sample_rate_hertz", 0, "8000 to 48000")
    error = translate_failure(failure_of(wrong))
    assert error.metadata == {
        "field": "sample_rate_hertz",
        "value": "0",
        "allowed": "8000 to 48000",
    }
    assert error.advice is Advice.GIVE_UP
    assert error.retry_after_s is None


def test_audio_that_ends_servers_is_not_sent_again():
    """A lost backend may pass, but not where the audio itself may be what ends backends."""
    lost = server_errors.BackendUnavailableError("the encoder is gone", retry_after_ms=1000)
    assert translate_failure(failure_of(lost)).advice is Advice.RETRY
    again = server_errors.BackendUnavailableError("the encoder is gone again", replays="2")
    assert translate_failure(failure_of(again)).advice is Advice.GIVE_UP


def test_an_utterance_that_is_too_long_is_not_sent_again():
    """A session may go on where it was too long; an utterance would be as long again."""
    session = server_errors.SessionTooLongError("an hour is over")
    assert translate_failure(failure_of(session)).advice is Advice.RETRY
    utterance = server_errors.SessionTooLongError("the utterance", allowed_ms="40000")
    assert translate_failure(failure_of(utterance)).advice is Advice.GIVE_UP


def test_unreadable_details_leave_the_status(caplog):
    """Details that are no message are told in the log; the status still counts."""
    metadata = Metadata((DETAILS_KEY, b"\xff\xff\xff"))
    failure = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), metadata, details="gone")
    assert isinstance(translate_failure(failure), ServerUnavailableError)
    assert "cannot be read" in caplog.text


async def test_a_server_that_cannot_be_reached_is_named():
    """In our words, for gRPC's as they are; what it says otherwise is told as it is."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(AioRpcError) as caught:
            await channel.unary_unary("/x/y")(b"")
    refused = translate_failure(caught.value)
    assert refused.message == "no server answers at 127.0.0.1:1: Connection refused"
    assert refused.code == "UNAVAILABLE"
    told = "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:1: timed out"
    for details, message in (
        (told, "no server answers at [::1]:1: timed out"),
        ("gone", "gone"),
        ("", "the server gave no message"),
    ):
        failure = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details=details)
        assert translate_failure(failure).message == message


def test_another_domain_is_not_ours():
    """A proxy's ErrorInfo does not speak for the server."""
    failure = failure_of(server_errors.SessionLimitError("full"))
    foreign = failure.trailing_metadata()[DETAILS_KEY].replace(b"earvoice", b"elsewher")
    failure = AioRpcError(
        failure.code(), Metadata(), Metadata((DETAILS_KEY, foreign)), details=failure.details()
    )
    assert translate_failure(failure).reason == ""


def documented_rows() -> list[list[str]]:
    rows = re.findall(
        r"^\| ([A-Z_]+) \| (\w+) \| (\w+) \| (.+) \|$", DOCUMENT.read_text("utf8"), re.MULTILINE
    )
    return [list(row) for row in rows]


def test_the_document_says_what_the_client_does():
    """Each row of docs/errors.md has the class and the advice of the code."""
    for status, reason, named, advice in documented_rows():
        kind = error_class(grpc.StatusCode[status], "" if reason == "none" else reason)
        assert kind.__name__ == named, (status, reason)
        passing = PASSING_BY_REASON.get(reason, kind.passing_by_default)
        expected = "retry or resume" if passing else "give up"
        assert advice.split(":")[0] == expected, (status, reason)


def test_the_document_is_complete():
    """Every status and every reason has its row in docs/errors.md."""
    rows = documented_rows()
    assert {row[0] for row in rows} == {status.name for status in ERROR_BY_STATUS}
    assert {row[1] for row in rows} == {*PASSING_BY_REASON, "none"}


def test_the_document_pairs_reasons_with_the_servers_statuses():
    """Each reason stands in docs/errors.md under the status that the server sends with it."""
    documented = {row[1]: row[0] for row in documented_rows()}
    for kind in vars(server_errors).values():
        if isinstance(kind, type) and issubclass(kind, server_errors.EarvoiceError):
            assert documented[kind.reason] == kind.code.name
