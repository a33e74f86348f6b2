"""What an error tells its caller."""

from __future__ import annotations

from earvoice.runtime.errors import InvalidFieldError
from earvoice.runtime.status import status_proto

MOST_BYTES_OF_METADATA = 8192


def test_a_short_value_is_told_as_it_is():
    """Field, value, what is allowed."""
    error = InvalidFieldError("beam_size", 17, "1 to 16")
    assert error.message == "beam_size = 17 is not allowed; allowed: 1 to 16"
    assert error.metadata == {"field": "beam_size", "value": "17", "allowed": "1 to 16"}


def test_a_problem_of_another_kind_is_told():
    """As where a field does not exist."""
    error = InvalidFieldError("policy.hold_n.x", 1, "n", "is not a parameter")
    assert error.message == "policy.hold_n.x is not a parameter; allowed: n"


def test_a_long_value_does_not_keep_its_status_from_the_caller():
    """The status travels as metadata, its message percent-encoded: a byte becomes three."""
    for value in ("語" * 100_000, "\0" * 100_000, [1] * 100_000):
        for field in ("model", "policy.hold_n." + "語" * 100_000):
            status = status_proto(InvalidFieldError(field, value, "another"))
            sent_bytes = 3 * len(status.message.encode()) + len(status.SerializeToString()) * 4 // 3
            assert sent_bytes < MOST_BYTES_OF_METADATA
            assert "allowed: another" in status.message
