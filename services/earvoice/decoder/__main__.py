"""`python -m earvoice.decoder`: the decoder service as a process."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from earvoice.decoder.settings import DecoderSettings
from earvoice.models.errors import ModelError
from earvoice.runtime.bootstrap import run_service

if TYPE_CHECKING:
    from earvoice.decoder.loading import LoadedDecoder


async def serve(settings: DecoderSettings) -> None:
    """Run until SIGTERM or SIGINT; NOT_SERVING while the model is loaded and while draining."""
    # gRPC is imported here, after `run_service` has set the environment that its core reads.
    from earvoice.api.v1 import decoder_service_pb2_grpc as pb_grpc  # noqa: PLC0415
    from earvoice.decoder.engine import DecoderEngine  # noqa: PLC0415
    from earvoice.decoder.service import SERVICE_NAME, DecoderService  # noqa: PLC0415
    from earvoice.runtime.engine import returning_memory  # noqa: PLC0415
    from earvoice.runtime.server import ServiceServer  # noqa: PLC0415
    from earvoice.telemetry.service_telemetry import ServiceTelemetry  # noqa: PLC0415

    telemetry = ServiceTelemetry("decoder", settings)
    service = DecoderService(settings, telemetry.tracer)
    telemetry.meters.observe_sessions(service.sessions)
    server = ServiceServer(settings, [SERVICE_NAME], authenticator=settings.authenticator)
    pb_grpc.add_DecoderServiceServicer_to_server(service, server.grpc_server)
    try:
        await server.start()
        (model, strategy), limit = await asyncio.to_thread(_load, settings)
        if limit is not None:
            service.sessions.limit = limit
        engine = DecoderEngine(strategy)
        engine.start()
        telemetry.meters.observe_engine(engine.load)
        service.serve(model, engine)
        async with returning_memory(engine.load):
            await server.serve_until_stopped(service.drain)
        await engine.close()
    finally:
        await server.stop()
        telemetry.close()


def _load(settings: DecoderSettings) -> tuple[LoadedDecoder, int | None]:
    """Return the decoder, and its session limit where that is to be measured, else None."""
    # Torch takes seconds to import; meanwhile the service listens and reports its health.
    from earvoice.decoder.loading import load_decoder, measure_segment_cost  # noqa: PLC0415
    from earvoice.models.precision import chosen_device  # noqa: PLC0415
    from earvoice.runtime.session_limit import computation_clock, measured_limit  # noqa: PLC0415

    loaded = load_decoder(settings)
    if settings.session_limit != "auto":
        return loaded, None
    clock_s = computation_clock(chosen_device(settings.device).type, settings.torch_threads)
    cost = measure_segment_cost(*loaded, clock_s)
    return loaded, measured_limit(cost, loaded.model.description.default_segment_ms, settings)


def main() -> int:
    return run_service("decoder", DecoderSettings, serve, failures=(OSError, ModelError))


if __name__ == "__main__":
    sys.exit(main())
