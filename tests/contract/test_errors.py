"""Every error has a status and a reason that the protos know."""

from __future__ import annotations

import grpc
import pytest

from earvoice.api.v1 import error_reason_pb2
from earvoice.runtime import errors
from earvoice.runtime.errors import Code, EarvoiceError


def subclasses(cls: type) -> list[type]:
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in subclasses(sub))]


OURS = [cls for cls in subclasses(EarvoiceError) if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_the_reason_is_in_the_protos(error: type[EarvoiceError]):
    """Clients can switch on the enum."""
    assert f"ERROR_REASON_{error.reason}" in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_codes_are_grpc_s(code: Code):
    """Names and numbers are those of gRPC."""
    assert grpc.StatusCode[code.name].value[0] == code.value


def test_every_reason_has_an_error():
    """A reason that nothing raises is dead."""
    known = {
        name.removeprefix("ERROR_REASON_")
        for name in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
    }
    assert known - {error.reason for error in OURS} == {"UNSPECIFIED"}
