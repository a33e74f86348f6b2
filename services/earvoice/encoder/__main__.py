"""`python -m earvoice.encoder`: the encoder service as a process."""

from __future__ import annotations

import sys
from functools import partial

from earvoice.encoder.settings import EncoderSettings
from earvoice.models.errors import ModelError
from earvoice.runtime.bootstrap import run_service


async def serve(settings: EncoderSettings) -> None:
    """Run until SIGTERM or SIGINT; NOT_SERVING while the model is loaded and while draining."""
    # Torch and gRPC are imported here, after what OpenMP and gRPC's core read has been set.
    from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc  # noqa: PLC0415
    from earvoice.encoder.model import load_model, measure_segment_cost  # noqa: PLC0415
    from earvoice.encoder.service import SERVICE_NAME, EncoderService  # noqa: PLC0415
    from earvoice.models.precision import chosen_device  # noqa: PLC0415
    from earvoice.runtime.engine import EngineThread  # noqa: PLC0415
    from earvoice.runtime.server import ServiceServer  # noqa: PLC0415
    from earvoice.runtime.session_limit import computation_clock, measured_limit  # noqa: PLC0415
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
        model = (await engine.run(partial(load_model, settings))).value
        if settings.session_limit == "auto":
            clock_s = computation_clock(chosen_device(settings.device).type, settings.torch_threads)
            cost = await engine.run(partial(measure_segment_cost, model, clock_s))
            service.sessions.limit = measured_limit(
                cost.value, model.facts.default_segment_ms, settings
            )
        service.serve(model)
        await server.serve_until_stopped(service.drain)
    finally:
        await server.stop()
        engine.close()
        telemetry.close()


def main() -> int:
    return run_service("encoder", EncoderSettings, serve, failures=(OSError, ModelError))


if __name__ == "__main__":
    sys.exit(main())
