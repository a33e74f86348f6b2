"""Where replicas are, as a setting says it."""

from __future__ import annotations

import pytest

from earvoice.policy.settings import PolicySettings, parse_target


def test_addresses_are_kept_as_they_are_given():
    """In order, each once; blanks between them do not matter."""
    addresses, names = parse_target("10.0.0.1:50052, encoder-1:50052,[::1]:1,10.0.0.1:50052")
    assert addresses == ("10.0.0.1:50052", "encoder-1:50052", "[::1]:1")
    assert names == ()


def test_a_looked_up_name_is_told_from_an_address():
    """It may stand among addresses."""
    addresses, names = parse_target("dns:///encoder.speech.svc:50052,127.0.0.1:7")
    assert names == (("encoder.speech.svc", 50052),)
    assert addresses == ("127.0.0.1:7",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "encoder",
        ":50052",
        "encoder:",
        "encoder:0",
        "encoder:65536",
        "encoder:http",
        "a:1,",
        "::1:50052",
        "dns://8.8.8.8/encoder:50052",
        "http://encoder:50052",
        "dns:///encoder..svc:50052",
        f"dns:///{'a' * 64}.svc:50052",
    ],
)
def test_what_is_no_target_is_refused(text: str):
    """The message says what is allowed; so does the service at its start."""
    with pytest.raises(ValueError, match="allowed: host:port"):
        parse_target(text)
    with pytest.raises(ValueError, match=r"allowed: host:port|at least 1 character"):
        PolicySettings(encoder_target=text)
