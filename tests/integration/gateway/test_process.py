"""The gateway's process: what it says where it cannot serve."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"TLS_CERTIFICATE_FILE": "none.pem", "TLS_KEY_FILE": "none.key"},
            "certificate none.pem with key none.key cannot be used",
        ),
        ({"HOST": "256.0.0.1"}, "EARVOICE_GATEWAY_HOST: cannot listen on 256.0.0.1:0: "),
    ],
)
async def test_a_gateway_that_cannot_serve_does_not_say_that_it_does(settings, told, tmp_path):
    """What is wrong is named, and nobody is given an address."""
    address_file = tmp_path / "address"
    settings |= {"PORT": "0", "ADDRESS_FILE": str(address_file)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.gateway"),
        env={**os.environ, **{f"EARVOICE_GATEWAY_{name}": it for name, it in settings.items()}},
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()
    (line,) = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == 1
    assert line["message"].startswith(f"cannot serve: {told}")
    assert not address_file.exists()
