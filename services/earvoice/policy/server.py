"""The policy service's process: its parts, put together."""

from __future__ import annotations

import asyncio
from pathlib import Path

from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.policies.registry import (
    Policies,
    PolicyLoadError,
    installed_policies,
    with_files,
)
from earvoice.policy.backends import Backends
from earvoice.policy.backends.call import BackendTimeouts
from earvoice.policy.backends.replicas import BackendAccess
from earvoice.policy.service import SERVICE_NAME, SpeechTranslationService
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.authentication import Authenticator, first_to_know, token_file
from earvoice.runtime.engine import LoopLagSelector
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.runtime.settings import SettingsError
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES
from earvoice.telemetry.service_telemetry import ServiceTelemetry


async def serve(settings: PolicySettings, turns: LoopLagSelector) -> None:
    policies = _policies(settings)
    authenticator = build_authenticator(settings)
    telemetry = ServiceTelemetry("policy", settings)
    sessions = SessionLimit(settings.session_limit, settings.tenant_session_limit)
    backends = _backends(settings, turns)
    telemetry.meters.observe_sessions(sessions, backends.refused)
    telemetry.meters.observe("earvoice.backend.ready", backends.ready_counts)
    telemetry.meters.observe("earvoice.backend.replays", lambda: dict(backends.replays))
    service = SpeechTranslationService(settings, backends, sessions, telemetry, policies)
    server = ServiceServer(settings, [SERVICE_NAME], PUBLIC_MESSAGE_LIMIT_BYTES, authenticator)
    public_grpc.add_SpeechTranslationServiceServicer_to_server(service, server.grpc_server)
    try:
        await server.start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(backends.run())
            getting_ready = group.create_task(_serve_once_ready(server, backends))
            await server.run_until_stopped(service.drain)
            getting_ready.cancel()
            running.cancel()
    finally:
        await server.stop()
        telemetry.close()


def _policies(settings: PolicySettings) -> Policies:
    try:
        return with_files(installed_policies(), settings.policy_files)
    except PolicyLoadError as error:
        raise SettingsError(f"a policy cannot be used: {error}") from error


def _backends(settings: PolicySettings, turns: LoopLagSelector) -> Backends:
    timeouts = BackendTimeouts(
        settings.answer_timeout_ms / 1000,
        settings.slow_answer_timeout_ms / 1000,
        settings.replacement_wait_ms / 1000,
    )
    if settings.backend_channel_tls is not None:
        settings.backend_channel_tls.check()
    access = BackendAccess(settings.backend_channel_tls, settings.backend_token)
    return Backends(
        settings.encoder_target,
        settings.decoder_target,
        turns.lag_s,
        timeouts,
        access,
    )


def build_authenticator(settings: PolicySettings) -> Authenticator | None:
    """Return what identifies callers; None where nobody needs a token."""
    known: list[Authenticator] = []
    try:
        if settings.auth_tokens_file:
            known.append(_token_file(settings, settings.auth_tokens_file))
        if settings.checks_jwts:
            known.append(_jwt_verifier(settings))
    except (OSError, ValueError) as error:
        raise SettingsError(f"tokens cannot be checked: {error}") from error
    return first_to_know(known) if known else None


def _token_file(settings: PolicySettings, path: Path) -> Authenticator:
    try:
        return token_file(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{settings.variable('auth_tokens_file')} = {path}: {error}") from error


def _jwt_verifier(settings: PolicySettings) -> Authenticator:
    try:
        # It is slow to import, and few need it.
        from earvoice.runtime.jwt_verifier import KeyUrl, jwt_verifier, key_file  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("JWTs need the extra: pip install 'earvoice[auth]'") from error
    file = settings.auth_jwks_file
    find_key = key_file(file) if file else KeyUrl(settings.auth_jwks_url).find
    return jwt_verifier(
        find_key,
        settings.auth_jwt_issuer,
        settings.auth_jwt_audience,
        settings.auth_jwt_tenant_claim,
    )


async def _serve_once_ready(server: ServiceServer, backends: Backends) -> None:
    await backends.wait_until_ready()
    await server.set_serving(serving=True)
