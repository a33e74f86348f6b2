"""`python -m earvoice.encoder`: the encoder service as a process."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from earvoice.encoder.settings import EncoderSettings
from earvoice.models.errors import ModelError
from earvoice.runtime.bootstrap import run_service

if TYPE_CHECKING:
    from earvoice.encoder.network import Network
    from earvoice.encoder.text import TextNetwork


async def serve(settings: EncoderSettings) -> None:
    """Run until SIGTERM or SIGINT; NOT_SERVING while the model is loaded and while draining."""
    # gRPC is imported here, after `run_service` has set the environment that its core reads.
    from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc  # noqa: PLC0415
    from earvoice.encoder.service import SERVICE_NAME, EncoderService  # noqa: PLC0415
    from earvoice.runtime.engine import EngineThread, returning_memory  # noqa: PLC0415
    from earvoice.runtime.server import ServiceServer  # noqa: PLC0415
    from earvoice.telemetry.service_telemetry import ServiceTelemetry  # noqa: PLC0415

    telemetry = ServiceTelemetry("encoder", settings)
    engine = EngineThread("encoder-engine")
    service = EncoderService(settings, engine, telemetry.tracer)
    telemetry.meters.observe_sessions(service.sessions)
    telemetry.meters.observe_engine(engine.load)
    server = ServiceServer(settings, [SERVICE_NAME], authenticator=settings.authenticator)
    pb_grpc.add_EncoderServiceServicer_to_server(service, server.grpc_server)
    try:
        await server.start()
        (model, limit), _, _ = await engine.run(partial(_load, settings))
        if limit is not None:
            service.sessions.limit = limit
        service.serve(model)
        async with returning_memory(engine.load):
            await server.serve_until_stopped(service.drain)
    finally:
        await server.stop()
        engine.close()
        telemetry.close()


def _load(settings: EncoderSettings) -> tuple[Network | TextNetwork, int | None]:
    """Return the model, and its session limit where that is to be measured, else None."""
    # Torch takes seconds to import; meanwhile the service listens and reports its health.
    from earvoice.encoder.model import load_model, measure_segment_cost  # noqa: PLC0415
    from earvoice.models.precision import chosen_device  # noqa: PLC0415
    from earvoice.runtime.session_limit import computation_clock, measured_limit  # noqa: PLC0415

    model = load_model(settings)
    if settings.session_limit != "auto":
        return model, None
    clock_s = computation_clock(chosen_device(settings.device).type, settings.torch_threads)
    cost = measure_segment_cost(model, clock_s)
    return model, measured_limit(cost, model.description.default_segment_ms, settings)


def main() -> int:
    return run_service("encoder", EncoderSettings, serve, failures=(OSError, ModelError))


if __name__ == "__main__":
    sys.exit(main())
