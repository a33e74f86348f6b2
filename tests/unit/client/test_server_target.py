"""Where a server may be."""

from __future__ import annotations

import pytest

from earvoice.client.server_target import ServerTarget, find_targets, split_address


def test_addresses_are_separated_by_commas():
    """Blanks do not matter; nothing between commas does."""
    assert split_address("a:1, b:2") == ("a:1", "b:2")
    with pytest.raises(ValueError, match="several separated by commas"):
        split_address("a:1,")


async def test_a_name_stands_for_all_its_addresses():
    """Each is a target, and the certificate bears the name."""
    targets = await find_targets(("dns:///localhost:50051", "b:2"))
    assert ServerTarget("127.0.0.1:50051", "localhost") in targets
    assert targets[-1] == ServerTarget("b:2")


async def test_a_name_that_nobody_knows_is_left_to_grpc():
    """It says what is wrong, and may know it later."""
    assert await find_targets(("dns:///no.such.name.invalid:1",)) == [
        ServerTarget("dns:///no.such.name.invalid:1")
    ]
