"""`python -m earvoice.policy`: serve the public API."""

from __future__ import annotations

import asyncio
import logging
import sys

from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.policy.authenticator import build_authenticator
from earvoice.policy.backends import Backends
from earvoice.policy.backends.access import BackendAccess
from earvoice.policy.backends.patience import Patience
from earvoice.policy.resume.token import build_mint
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

    Raises:
        SettingsError: the callers' tokens cannot be checked.
        OSError: the address cannot be bound, or a certificate not be used.
    """
    authenticator = build_authenticator(settings)
    telemetry = ServiceTelemetry("policy", settings)
    sessions = SessionLimit(settings.session_limit, settings.tenant_session_limit)
    backends = _backends(settings, turns)
    telemetry.meters.observe_sessions(sessions, backends.refused)
    telemetry.meters.observe("earvoice.backend.ready", backends.ready_counts)
    telemetry.meters.observe("earvoice.backend.replays", lambda: dict(backends.replays))
    service = SpeechTranslationService(
        settings, backends, sessions, telemetry, build_mint(settings)
    )
    server = ServiceServer(settings, [SERVICE_NAME], PUBLIC_MESSAGE_LIMIT_BYTES, authenticator)
    public_grpc.add_SpeechTranslationServiceServicer_to_server(service, server.grpc_server)
    try:
        await server.start()
        backends.start()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(backends.watch())
            getting_ready = group.create_task(_serve_once_ready(server, backends))
            await server.run_until_stopped(service.drain)
            getting_ready.cancel()
            watching.cancel()
        await backends.close()
    finally:
        telemetry.close()


def _backends(settings: PolicySettings, turns: TurnSelector) -> Backends:
    patience = Patience(
        settings.answer_timeout_ms / 1000,
        settings.slow_answer_timeout_ms / 1000,
        settings.replacement_wait_ms / 1000,
    )
    access = BackendAccess(settings.backend_channel_tls, settings.backend_token)
    return Backends(
        settings.encoder_target,
        settings.decoder_target,
        lambda: turns.starved_s,
        patience,
        access,
    )


async def _serve_once_ready(server: ServiceServer, backends: Backends) -> None:
    await backends.wait_until_ready()
    await server.set_serving(serving=True)


def main() -> int:
    """Run the service; return the process's exit code."""
    try:
        settings = load_settings(PolicySettings)
        configure_logging("policy", settings.log_level)
        turns = TurnSelector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
            runner.run(serve(settings, turns))
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - it may be before there is a log
        return 2
    except OSError as error:
        logging.getLogger("earvoice.policy").critical("cannot serve: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
