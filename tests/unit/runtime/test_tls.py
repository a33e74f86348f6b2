"""Which addresses only this machine reaches."""

from __future__ import annotations

import pytest

from earvoice.runtime.tls import is_local_target, is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool):
    """All interfaces are not loopback, nor is a name that only looks like it."""
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("127.0.0.1:50051", True),
        ("[::1]:50051", True),
        ("dns:///localhost:50051", True),
        ("unix:/run/earvoice.sock", True),
        ("unix:///run/earvoice.sock", True),
        ("earvoice:50051", False),
        ("dns:///earvoice.example:50051", False),
        ("dns://127.0.0.1/earvoice.example:50051", False),
        ("localhost", False),
    ],
)
def test_targets(target: str, expected: bool):
    """What cannot be told counts as elsewhere."""
    assert is_local_target(target) is expected
