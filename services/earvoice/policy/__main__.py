"""`python -m earvoice.policy`: serve the public API."""

from __future__ import annotations

import asyncio
import logging
import sys

from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.policy.backends import Backends
from earvoice.policy.service import SERVICE_NAME, SpeechTranslationService
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.log import configure_logging
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.runtime.settings import SettingsError, load_settings
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES
from earvoice.runtime.turn_selector import TurnSelector
from earvoice.telemetry.service_telemetry import ServiceTelemetry


async def serve(settings: PolicySettings, turns: TurnSelector) -> None:
    """Serve until SIGTERM.

    Args:
        settings: the service's.
        turns: the event loop's selector.
    """
    telemetry = ServiceTelemetry("policy", settings)
    sessions = SessionLimit(settings.session_limit)
    telemetry.meters.observe_sessions(sessions)
    backends = Backends(settings.encoder_target, settings.decoder_target, lambda: turns.starved_s)
    service = SpeechTranslationService(settings, backends, sessions, telemetry)
    server = ServiceServer(settings, [SERVICE_NAME], PUBLIC_MESSAGE_LIMIT_BYTES)
    public_grpc.add_SpeechTranslationServiceServicer_to_server(service, server.grpc_server)
    try:
        await server.start()
        async with asyncio.TaskGroup() as group:
            getting_ready = group.create_task(_serve_once_ready(server, backends))
            await server.run_until_stopped(service.drain)
            getting_ready.cancel()
        await backends.close()
    finally:
        telemetry.close()


async def _serve_once_ready(server: ServiceServer, backends: Backends) -> None:
    await backends.wait_until_ready()
    await server.set_serving(serving=True)


def main() -> int:
    """Run the service; return the process's exit code."""
    try:
        settings = load_settings(PolicySettings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - before there is a log
        return 2
    configure_logging("policy", settings.log_level)
    turns = TurnSelector()
    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
            runner.run(serve(settings, turns))
    except OSError as error:
        logging.getLogger("earvoice.policy").critical("cannot serve: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
