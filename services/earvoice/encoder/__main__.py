"""`python -m earvoice.encoder`: the encoder service as a process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from earvoice.encoder.settings import EncoderSettings
from earvoice.runtime.log import configure_logging
from earvoice.runtime.settings import SettingsError, load_settings


def main() -> int:
    """Serve until told to stop; return the process's exit status."""
    try:
        settings = load_settings(EncoderSettings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging("encoder", settings.log_level)
    # OpenMP reads these when torch is imported. Threads that spin while they wait slow every
    # other process on the machine down by an order of magnitude.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.torch_threads))
    from earvoice.encoder.server import serve  # noqa: PLC0415 - imports torch
    from earvoice.encoder.speech_detector import SpeechDetectorError  # noqa: PLC0415
    from earvoice.models.device import DeviceError  # noqa: PLC0415 - imports torch
    from earvoice.models.errors import ModelError  # noqa: PLC0415

    try:
        asyncio.run(serve(settings))
    except (ModelError, DeviceError, SpeechDetectorError, OSError) as error:
        logging.getLogger("earvoice.encoder").critical("cannot serve: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
