"""The encoder process: listen, load, serve, drain."""

from __future__ import annotations

from functools import partial

from earvoice.encoder.calibration import measure_segment_cost
from earvoice.encoder.model import load_model
from earvoice.encoder.request_trace import RequestTrace
from earvoice.encoder.service import SERVICE_NAME, EncoderService
from earvoice.encoder.settings import EncoderSettings
from earvoice.models.device import chosen_device
from earvoice.runtime.authentication import secrets_authenticator
from earvoice.runtime.capacity import bearable_sessions, computation_clock
from earvoice.runtime.executor import EngineThread
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.telemetry.service_telemetry import ServiceTelemetry


async def serve(settings: EncoderSettings) -> None:
    """Run until SIGTERM or SIGINT; NOT_SERVING while the model is loaded and while draining.

    Raises:
        OSError: the address cannot be bound.
        ModelError: the checkpoint is not usable.
        SpeechDetectorError: the speech detector's weights are missing.
        DeviceError: there is no such device.
    """
    telemetry = ServiceTelemetry("encoder", settings)
    engine = EngineThread("encoder-engine")
    limit = SessionLimit(settings.session_limit)
    telemetry.meters.observe_sessions(limit)
    telemetry.meters.observe_engine(engine.load)
    service = EncoderService(settings, engine, limit, RequestTrace(telemetry.tracer))
    server = ServiceServer(
        settings, [SERVICE_NAME], authenticator=secrets_authenticator(settings.access_tokens)
    )
    service.add_to(server.grpc_server)

    async def drain(_grace_s: float) -> None:
        await limit.drain()

    try:
        await server.start()
        loaded = await engine.run(partial(load_model, settings))
        if settings.session_limit == "auto":
            clock_s = computation_clock(chosen_device(settings.device).type, settings.torch_threads)
            cost = await engine.run(partial(measure_segment_cost, loaded.value, clock_s))
            limit.limit = bearable_sessions(cost.value, loaded.value.facts, settings)
        service.serve(loaded.value)
        await server.serve_until_stopped(drain)
    finally:
        await server.stop()
        engine.close()
        telemetry.close()
