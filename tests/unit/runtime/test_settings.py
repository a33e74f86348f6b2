"""Settings are checked, and a misspelt variable is an error."""

from __future__ import annotations

import pytest

from earvoice.encoder.settings import EncoderSettings
from earvoice.gateway.settings import GatewaySettings
from earvoice.policy.server import build_authenticator
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.settings import SettingsError, load_settings


def test_defaults_need_no_environment():
    """Port 50051 and 64 sessions; an engine measures how many it bears."""
    settings = load_settings(PolicySettings)
    assert (settings.port, settings.session_limit) == (50051, 64)
    assert load_settings(EncoderSettings).session_limit == "auto"


def test_the_environment_is_read(monkeypatch):
    """Variables carry the service's prefix."""
    monkeypatch.setenv("EARVOICE_POLICY_SESSION_LIMIT", "3")
    assert load_settings(PolicySettings).session_limit == 3


def test_a_misspelt_variable_is_an_error(monkeypatch):
    """It is named, with the one that was meant."""
    monkeypatch.setenv("EARVOICE_POLICY_SESION_LIMIT", "3")
    with pytest.raises(SettingsError, match="did you mean EARVOICE_POLICY_SESSION_LIMIT"):
        load_settings(PolicySettings)


def test_a_value_out_of_range_is_named(monkeypatch):
    """Variable, value and what is allowed."""
    monkeypatch.setenv("EARVOICE_POLICY_SESSION_LIMIT", "0")
    with pytest.raises(SettingsError, match=r"EARVOICE_POLICY_SESSION_LIMIT = '0'.*greater"):
        load_settings(PolicySettings)


def test_a_protocol_of_opentelemetry_that_is_not_here_is_an_error(monkeypatch):
    """Spans that go nowhere would be found out too late."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL.*allowed: grpc"):
        load_settings(PolicySettings)


@pytest.mark.parametrize("limit", ["auto", "7"])
def test_an_engines_limit_is_a_number_or_measured(monkeypatch, limit):
    """`auto` is the only word."""
    monkeypatch.setenv("EARVOICE_ENCODER_SESSION_LIMIT", limit)
    assert str(load_settings(EncoderSettings).session_limit) == limit
    monkeypatch.setenv("EARVOICE_ENCODER_SESSION_LIMIT", "many")
    with pytest.raises(SettingsError, match=r"^EARVOICE_ENCODER_SESSION_LIMIT = 'many': [^\n]*$"):
        load_settings(EncoderSettings)


def test_an_engine_refuses_to_serve_everybody_unless_told_to(monkeypatch):
    """Beyond loopback it wants a secret, certificates of its callers, or the word for it."""
    monkeypatch.setenv("EARVOICE_ENCODER_HOST", "0.0.0.0")
    with pytest.raises(SettingsError, match=r"HOST = '0.0.0.0' can be reached from other machines"):
        load_settings(EncoderSettings)
    for name, value in (("ACCESS_TOKEN", "x" * 16), ("ALLOW_UNAUTHENTICATED", "true")):
        with monkeypatch.context() as change:
            change.setenv(f"EARVOICE_ENCODER_{name}", value)
            load_settings(EncoderSettings)
    monkeypatch.setenv("EARVOICE_ENCODER_HOST", "127.0.0.1")
    load_settings(EncoderSettings)


def test_a_secret_is_not_told(monkeypatch):
    """Neither where it is wrong nor where settings are printed."""
    monkeypatch.setenv("EARVOICE_ENCODER_ACCESS_TOKEN", "hidden,another-one-of-the-secrets")
    with pytest.raises(SettingsError, match="too short") as refused:
        load_settings(EncoderSettings)
    assert "hidden" not in str(refused.value)
    monkeypatch.setenv("EARVOICE_POLICY_BACKEND_ACCESS_TOKEN", "hidden")
    with pytest.raises(SettingsError, match=r"BACKEND_ACCESS_TOKEN = \(not shown\)") as refused:
        load_settings(PolicySettings)
    assert "'hidden" not in str(refused.value)
    monkeypatch.setenv("EARVOICE_POLICY_BACKEND_ACCESS_TOKEN", "hidden-but-long-enough\n")
    settings = load_settings(PolicySettings)
    assert "hidden" not in repr(settings)
    assert settings.backend_token == "hidden-but-long-enough"


@pytest.mark.parametrize(
    ("settings_class", "field"),
    [
        (EncoderSettings, "access_token"),
        (PolicySettings, "backend_access_token"),
        (GatewaySettings, "server_token"),
    ],
)
def test_a_secret_that_no_header_can_carry_is_refused(monkeypatch, settings_class, field):
    """At the start, not by each call that should bear it."""
    monkeypatch.setenv("EARVOICE_GATEWAY_TOKEN_KEY", "k" * 32)
    for secret in ("long-enough-but-\nbroken", "lang-genug-aber-nicht-schön"):
        monkeypatch.setenv(settings_class.variable(field), secret)
        with pytest.raises(SettingsError, match=r"= \(not shown\): .* printable ASCII") as refused:
            load_settings(settings_class)
        assert "long" not in str(refused.value)


@pytest.mark.parametrize("field", ["server_token", "token_key", "twilio_auth_token"])
def test_a_secrets_last_line_break_is_no_part_of_it(monkeypatch, field):
    """It comes with the file that the secret was read from."""
    monkeypatch.setenv("EARVOICE_GATEWAY_TOKEN_KEY", "k" * 32)
    monkeypatch.setenv("EARVOICE_GATEWAY_TWILIO_ADDRESS", "wss://captions.example/v1/twilio")
    monkeypatch.setenv("EARVOICE_GATEWAY_TWILIO_AUTH_TOKEN", "of the account")
    secret = "s" * 32
    monkeypatch.setenv(GatewaySettings.variable(field), secret + "\n")
    assert getattr(load_settings(GatewaySettings), field).get_secret_value() == secret


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"TLS_KEY_FILE": "key"}, "TLS_CERTIFICATE_FILE and TLS_KEY_FILE are given together"),
        ({"TLS_CLIENT_CA_FILE": "ca"}, "TLS_CLIENT_CA_FILE needs TLS_CERTIFICATE_FILE"),
        ({"BACKEND_TLS_KEY_FILE": "key"}, "BACKEND_TLS_KEY_FILE are given together"),
        (
            {"BACKEND_TLS_KEY_FILE": "key", "BACKEND_TLS_CERTIFICATE_FILE": "certificate"},
            "needs BACKEND_TLS_CA_FILE",
        ),
        ({"AUTH_JWKS_FILE": "keys"}, "AUTH_JWT_ISSUER and AUTH_JWT_AUDIENCE"),
        ({"AUTH_JWT_ISSUER": "https://issuer"}, "need AUTH_JWKS_FILE or AUTH_JWKS_URL"),
        ({"AUTH_JWT_AUDIENCE": "us", "AUTH_JWKS_URL": ""}, "need AUTH_JWKS_FILE or AUTH_JWKS_URL"),
        (
            {"BACKEND_TLS_SERVER_NAME": "engine"},
            "BACKEND_TLS_SERVER_NAME needs BACKEND_TLS_CA_FILE",
        ),
        ({"AUTH_JWKS_URL": "file:///keys"}, "AUTH_JWKS_URL = 'file:///keys'"),
        ({"TENANT_SESSION_LIMIT": "3"}, "TENANT_SESSION_LIMIT needs AUTH_TOKENS_FILE"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_what_protects_only_together_is_wanted_together(monkeypatch, given, message):
    """A half-set protection would be taken for a whole one."""
    for name, value in given.items():
        monkeypatch.setenv(f"EARVOICE_POLICY_{name}", value)
    with pytest.raises(SettingsError) as refused:
        load_settings(PolicySettings)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["TRACE_FILE", "AUTH_TOKENS_FILE", "BACKEND_TLS_CA_FILE", "HOST"])
def test_an_empty_variable_is_named(monkeypatch, name):
    """A template's variable that came out empty is neither the working folder nor a default."""
    monkeypatch.setenv(f"EARVOICE_POLICY_{name}", "")
    with pytest.raises(SettingsError, match=f"EARVOICE_POLICY_{name} = ''"):
        load_settings(PolicySettings)


@pytest.mark.parametrize("blank", ["", " ", "\n", ",", " , "])
def test_a_blank_secret_is_none(monkeypatch, blank):
    """A secret that was mounted empty must not open an engine to everybody."""
    monkeypatch.setenv("EARVOICE_ENCODER_HOST", "0.0.0.0")
    monkeypatch.setenv("EARVOICE_ENCODER_ACCESS_TOKEN", blank)
    with pytest.raises(SettingsError, match="ACCESS_TOKEN is blank"):
        load_settings(EncoderSettings)


@pytest.mark.parametrize("content", ["calls a-token-in-the-clear\n", None])
def test_a_file_of_tokens_that_cannot_be_read_is_named(tmp_path, content):
    """With the variable that gives it, whatever is wrong with it."""
    tokens = tmp_path / "tokens"
    if content is not None:
        tokens.write_text(content)
    settings = load_settings(PolicySettings, auth_tokens_file=tokens)
    with pytest.raises(SettingsError, match=f"EARVOICE_POLICY_AUTH_TOKENS_FILE = {tokens}: "):
        build_authenticator(settings)
