"""What importing the client costs."""

import subprocess
import sys


def test_the_client_imports_neither_torch_nor_numpy():
    """A caller without an audio library can still talk to a server."""
    check = (
        "import sys, earvoice.client, earvoice.client.pcm_stream, earvoice.client.pacing\n"
        "print(sorted({'torch', 'numpy', 'soundfile', 'pydantic'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
