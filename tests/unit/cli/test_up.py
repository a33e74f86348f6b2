"""What the services are started with, and the file that tells where they are."""

import argparse
import json
import socket
import sys
from pathlib import Path

import pytest

from earvoice.cli.command import CommandError, ExitCode
from earvoice.cli.local_services import LocalServices, ServiceChoices, plan_service
from earvoice.cli.log_relay import ServiceLogs
from earvoice.cli.up import build_environment, clear_ready_file, publish_addresses


def test_a_service_gets_its_settings(tmp_path, monkeypatch):
    """Choices outrank the environment; threads are kept from fighting; the grace is respected."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("EARVOICE_POLICY_DRAIN_GRACE_MS", "2000")
    monkeypatch.setenv("EARVOICE_POLICY_ENCODER_TARGET", "elsewhere:1")
    plan = plan_service(
        "policy",
        tmp_path,
        port=None,
        start_timeout_s=3,
        settings={"ENCODER_TARGET": "127.0.0.1:5", "DECODER_TARGET": "127.0.0.1:6"},
    )
    assert plan.program == (sys.executable, "-P", "-m", "earvoice.policy")
    assert plan.environment["EARVOICE_POLICY_ENCODER_TARGET"] == "127.0.0.1:5"
    assert plan.environment["EARVOICE_POLICY_DECODER_TARGET"] == "127.0.0.1:6"
    assert plan.environment["OMP_NUM_THREADS"] == "1"
    assert plan.environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert (plan.variable_prefix, plan.address_file) == (
        "EARVOICE_POLICY_",
        tmp_path / "policy.address",
    )
    assert plan.stop_timeout_s == 7.0


def test_the_environment_outranks_a_default(tmp_path, monkeypatch):
    """A default stands where nobody has said anything."""

    def limit() -> str:
        plan = plan_service(
            "encoder", tmp_path, port=0, start_timeout_s=3, defaults={"SESSION_LIMIT": "16"}
        )
        return plan.environment["EARVOICE_ENCODER_SESSION_LIMIT"]

    monkeypatch.delenv("EARVOICE_ENCODER_SESSION_LIMIT", raising=False)
    assert limit() == "16"
    monkeypatch.setenv("EARVOICE_ENCODER_SESSION_LIMIT", "3")
    assert limit() == "3"


@pytest.mark.parametrize("service", ["policy", "gateway"])
async def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path, monkeypatch, service):
    """Whether it was given or stands in the service's settings."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(f"EARVOICE_{service.upper()}_PORT", str(port))
        for given in (port, None):
            choices = ServiceChoices(ports={"encoder": 0, service: given}, gateway=True)
            services = LocalServices(choices, ServiceLogs(), tmp_path)
            with pytest.raises(CommandError, match=f"port {port} of the {service}") as told:
                await services.start()
            assert told.value.exit_code is ExitCode.SERVICES
            assert not services.addresses


@pytest.mark.parametrize(
    "setting",
    [
        "EARVOICE_POLICY_METRICS_PORT",
        "EARVOICE_ENCODER_HEALTH_PORT",
        "EARVOICE_GATEWAY_AUDIOSOCKET_PORT",
    ],
)
async def test_so_are_the_ports_beside_it(tmp_path, monkeypatch, setting):
    """By the setting; nor can two of them share a port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(setting, str(port))
        choices = ServiceChoices(ports={"gateway": 0}, gateway=True)
        services = LocalServices(choices, ServiceLogs(), tmp_path)
        with pytest.raises(CommandError, match=f"port {port} of {setting} is taken") as told:
            await services.start()
        assert told.value.exit_code is ExitCode.SERVICES
        monkeypatch.setenv("EARVOICE_DECODER_METRICS_PORT", str(port))
    with pytest.raises(CommandError, match=f"port {port} is given to EARVOICE_"):
        await services.start()


def test_a_grace_that_is_no_number_is_told(tmp_path, monkeypatch):
    """By variable, value and what is allowed."""
    monkeypatch.setenv("EARVOICE_ENCODER_DRAIN_GRACE_MS", "soon")
    with pytest.raises(CommandError, match="EARVOICE_ENCODER_DRAIN_GRACE_MS = 'soon'"):
        plan_service("encoder", tmp_path, port=0, start_timeout_s=3)


def test_serve_hands_its_options_on_as_settings():
    """What is not given is left to the service."""
    options = argparse.Namespace(host=None, port=0, address_file=Path("decoder.address"))
    environment = build_environment("decoder", options)
    assert environment["EARVOICE_DECODER_PORT"] == "0"
    assert environment["EARVOICE_DECODER_ADDRESS_FILE"] == "decoder.address"
    assert "EARVOICE_DECODER_HOST" not in environment


def test_it_is_there_while_the_services_are(tmp_path):
    """Whole, with the public address first, and gone afterwards."""
    path = tmp_path / "ready.json"
    with publish_addresses(path, {"policy": "h:1", "encoder": "h:2", "decoder": "h:3"}):
        content = json.loads(path.read_text())
        assert [entry.name for entry in tmp_path.iterdir()] == ["ready.json"]
    assert content == {"address": "h:1", "policy": "h:1", "encoder": "h:2", "decoder": "h:3"}
    assert not path.exists()


def test_what_an_earlier_run_left_is_removed(tmp_path):
    """A supervisor that was killed could not; a wrong folder is told before anything starts."""
    path = tmp_path / "ready.json"
    path.write_text("old")
    clear_ready_file(path)
    clear_ready_file(path)
    assert not path.exists()
    with pytest.raises(CommandError, match="there is no folder"):
        clear_ready_file(tmp_path / "none" / "ready.json")
