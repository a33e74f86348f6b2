"""`python -m earvoice.decoder`: load the model, serve it, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from earvoice.decoder.settings import DecoderSettings
from earvoice.runtime.log import configure_logging
from earvoice.runtime.settings import SettingsError, load_settings

_EXIT_CONFIGURATION = 2
_EXIT_FAILED = 1


def main() -> int:
    """Run the service.

    Returns:
        0 after a drain, 1 when model, device or address cannot be had, 2 when the
        configuration is wrong.
    """
    try:
        settings = load_settings(DecoderSettings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _EXIT_CONFIGURATION
    configure_logging("decoder", settings.log_level)
    # OpenMP threads that spin between products slow every other process of the machine; the
    # library reads these once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.torch_threads))
    return asyncio.run(_serve(settings))


async def _serve(settings: DecoderSettings) -> int:
    # Imported here, after the environment has been set for torch.
    from earvoice.decoder.calibration import DecoderCalibration  # noqa: PLC0415
    from earvoice.decoder.engine import DecoderEngine  # noqa: PLC0415
    from earvoice.decoder.generation_trace import GenerationTrace  # noqa: PLC0415
    from earvoice.decoder.loading import load_decoder  # noqa: PLC0415
    from earvoice.decoder.service import SERVICE_NAME, DecoderService, register  # noqa: PLC0415
    from earvoice.models.device import DeviceError, chosen_device  # noqa: PLC0415
    from earvoice.models.errors import ModelError  # noqa: PLC0415
    from earvoice.runtime.authentication import secrets_authenticator  # noqa: PLC0415
    from earvoice.runtime.capacity import bearable_sessions, computation_clock  # noqa: PLC0415
    from earvoice.runtime.server import ServiceServer  # noqa: PLC0415
    from earvoice.telemetry.service_telemetry import ServiceTelemetry  # noqa: PLC0415

    server = ServiceServer(
        settings, [SERVICE_NAME], authenticator=secrets_authenticator(settings.access_tokens)
    )
    try:
        telemetry = ServiceTelemetry("decoder", settings)
        service = DecoderService(settings, GenerationTrace(telemetry.tracer))
        register(service, server.grpc_server)
        await server.start()
        loaded = await asyncio.to_thread(load_decoder, settings)
        if settings.session_limit == "auto":
            clock_s = computation_clock(chosen_device(settings.device).type, settings.torch_threads)
            calibration = DecoderCalibration(loaded.model, loaded.strategy, clock_s)
            cost = await asyncio.to_thread(calibration.segment_cost)
            service.sessions.limit = bearable_sessions(cost, loaded.model.facts, settings)
    except (OSError, ModelError, DeviceError) as error:
        logging.getLogger("earvoice.decoder").critical("cannot serve: %s", error)
        await server.stop()
        return _EXIT_FAILED
    engine = DecoderEngine(loaded.strategy)
    engine.start()
    telemetry.meters.observe_sessions(service.sessions)
    telemetry.meters.observe_engine(engine.load)
    service.serve(loaded.model, engine)
    await server.serve_until_stopped(service.drain)
    await engine.close()
    telemetry.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
