"""Settings are checked, and a misspelt variable is an error."""

from __future__ import annotations

import pytest

from earvoice.policy.settings import PolicySettings
from earvoice.runtime.settings import SettingsError, load_settings


def test_defaults_need_no_environment():
    """Port 50051 and 16 sessions."""
    settings = load_settings(PolicySettings)
    assert (settings.port, settings.session_limit) == (50051, 16)


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
