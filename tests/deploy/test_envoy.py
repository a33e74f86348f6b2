"""Envoy before the policy services: the real one, with the configuration of deploy/k8s."""

import asyncio
import copy
import subprocess
import urllib.error
import urllib.request

import grpc
import pytest
import yaml

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from tests.deploy.envoy_process import (
    FOLDER,
    PATIENCE_S,
    envoy_before,
    envoy_program,
    metric,
    place_configuration,
    read_configuration,
    wait_until_healthy,
)
from tests.deploy.named_service import HEADER, SERVICE, named_services, replica_of
from tests.deploy.tool import output_of

SESSIONS = [str(number) for number in range(30)]
# For a share that varies little.
MANY_SESSIONS = [str(number) for number in range(200)]
# Connections that were told to go elsewhere.
DRAINED = 'envoy_http_downstream_cx_drain_close{envoy_http_conn_manager_prefix="public"}'


def without_tls(configuration):
    """A configuration's listeners and clusters, less what encrypts."""
    plain = copy.deepcopy(configuration["static_resources"])
    for listener in plain["listeners"]:
        for chain in listener["filter_chains"]:
            chain.pop("transport_socket", None)
    for cluster in plain["clusters"]:
        cluster.pop("transport_socket", None)
    return plain


def test_both_configurations_are_one():
    """With TLS and without they differ in the encryption, and in nothing else."""
    plain, encrypted = (read_configuration(name) for name in ("envoy.yaml", "envoy-tls.yaml"))
    assert without_tls(encrypted) == plain["static_resources"] == without_tls(plain)
    assert plain["admin"] == encrypted["admin"]


def test_it_asks_for_the_services_health():
    """By the name that the policy service tells, at the address that its Service has."""
    policy, _ = read_configuration("envoy.yaml")["static_resources"]["clusters"]
    (check,) = policy["health_checks"]
    assert check["grpc_health_check"]["service_name"] == SERVICE


@pytest.mark.parametrize("name", ["envoy.yaml", "envoy-tls.yaml"])
def test_envoy_takes_the_configuration(name, tmp_path):
    """By its own check."""
    place_configuration(name, tmp_path, ["127.0.0.1:1"], tmp_path)
    assert "OK" in output_of(envoy_program(), "--mode", "validate", "-c", tmp_path / name)


def test_envoy_refuses_a_wrong_one(tmp_path):
    """The check can fail."""
    place_configuration("envoy.yaml", tmp_path, ["127.0.0.1:1"])
    text = (tmp_path / "envoy.yaml").read_text(encoding="utf8").replace("RING_HASH", "RING")
    (tmp_path / "envoy.yaml").write_text(text, encoding="utf8")
    command = [envoy_program(), "--mode", "validate", "-c", tmp_path / "envoy.yaml"]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


async def test_a_service_that_is_late_is_found_before_the_first_stream(tmp_path):
    """As after a start of the whole cluster, when models load for longer than Envoy takes."""
    async with named_services(1) as services:
        await services[0].serve(serving=False)
        async with envoy_before(services, tmp_path, healthy=0) as (_, status):
            await services[0].serve()
            await asyncio.to_thread(wait_until_healthy, status, 1)


async def test_a_session_comes_back_to_its_replica(tmp_path):
    """And the sessions are spread over all; a second connection changes nothing."""
    async with named_services(3) as services, envoy_before(services, tmp_path) as (address, _):
        places = []
        for _ in range(2):
            async with grpc.aio.insecure_channel(address) as channel:
                places.append([await replica_of(channel, session) for session in SESSIONS])
    assert places[0] == places[1]
    assert set(places[0]) == {"0", "1", "2"}


async def test_a_full_replica_s_sessions_are_taken_elsewhere(tmp_path):
    """RESOURCE_EXHAUSTED at the opening is no answer while another has room."""
    # On a ring of two, half of the next places are the full one's again.
    async with named_services(2) as services, envoy_before(services, tmp_path) as (address, _):
        services[0].is_full = True
        async with grpc.aio.insecure_channel(address) as channel:
            places = [await replica_of(channel, session) for session in MANY_SESSIONS]
        assert services[0].asked
    assert set(places) == {"1"}


async def test_all_full_is_said(tmp_path):
    """The client hears the replica's own status."""
    async with named_services(2) as services, envoy_before(services, tmp_path) as (address, _):
        for service in services:
            service.is_full = True
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await replica_of(channel, "1")
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.value.details() == "full"


async def test_a_lost_replica_s_sessions_are_taken_by_others(tmp_path):
    """From the moment it is gone: every new stream is served, and most others keep their place."""
    async with (
        named_services(3) as services,
        envoy_before(services, tmp_path) as (address, _),
        grpc.aio.insecure_channel(address) as channel,
    ):
        before = [await replica_of(channel, session) for session in MANY_SESSIONS]
        await services[0].stop()
        after = [await replica_of(channel, session) for session in MANY_SESSIONS]
    assert "0" not in after
    kept = [old == new for old, new in zip(before, after, strict=True) if old != "0"]
    # Envoy shares a thousand places on its ring among the replicas that it has. Of three, each gets
    # half as many again when one goes, and every sixth session moves; without a ring every second.
    assert sum(kept) > 0.7 * len(kept)


async def test_a_draining_replica_keeps_its_streams(tmp_path):
    """NOT_SERVING turns new streams away; those that run go on to their end."""
    async with (
        named_services(3) as services,
        envoy_before(services, tmp_path) as (address, status),
        grpc.aio.insecure_channel(address) as channel,
    ):
        calls = [await running_call(channel, session) for session in SESSIONS]
        await services[0].serve(serving=False)
        await asyncio.to_thread(wait_until_healthy, status, 2)
        await until_taken_by({"1", "2"}, channel)
        asked = services[0].asked
        assert "0" not in [await replica_of(channel, session) for session in SESSIONS]
        assert services[0].asked == asked > 0
        for call in calls:
            await call.write(pb.StreamingTranslateRequest(audio=b"ab"))
            assert await call.read() != grpc.aio.EOF
            call.cancel()


async def test_few_healthy_replicas_get_all_streams(tmp_path):
    """Envoy's default is to ask the others as well where less than half are healthy."""
    async with (
        named_services(3) as services,
        envoy_before(services, tmp_path) as (address, status),
        grpc.aio.insecure_channel(address) as channel,
    ):
        for service in services[:2]:
            await service.serve(serving=False)
        await asyncio.to_thread(wait_until_healthy, status, 1)
        await until_taken_by({"2"}, channel)


async def test_a_pod_that_goes_turns_its_clients_away(tmp_path):
    """By what preStop runs: a stream goes on, and with the next one the connection is over."""
    async with (
        named_services(1) as services,
        envoy_before(services, tmp_path) as (address, status),
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = await running_call(channel, "1")
        placed = yaml.safe_load((tmp_path / "envoy.yaml").read_text(encoding="utf8"))
        admin_port = placed["admin"]["address"]["socket_address"]["port_value"]
        assert "OK" in await asyncio.to_thread(output_of, *prestop_command(admin_port))
        assert metric(status, DRAINED) == 0
        assert await replica_of(channel, "2") == "0"
        assert metric(status, DRAINED) == 1
        await call.write(pb.StreamingTranslateRequest(audio=b"ab"))
        assert await call.read() != grpc.aio.EOF
        call.cancel()


def prestop_command(admin_port):
    """What a pod of Envoy's runs before it is told to stop, less its wait."""
    documents = yaml.safe_load_all((FOLDER / "deployment.yaml").read_text(encoding="utf8"))
    deployment = next(item for item in documents if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    *shell, script = container["lifecycle"]["preStop"]["exec"]["command"]
    return [*shell, script.replace("/9901", f"/{admin_port}").replace("sleep 60", "")]


async def until_taken_by(replicas, channel):
    """Ask until just these answer: Envoy's worker hears of health after its metrics do."""
    found = set()
    async with asyncio.timeout(PATIENCE_S):
        while found != replicas:
            found = {await replica_of(channel, session) for session in SESSIONS}


async def running_call(channel, session):
    stub = public_grpc.SpeechTranslationServiceStub(channel)
    call = stub.StreamingTranslate(metadata=[(HEADER, session)])
    await call.read()
    return call


async def test_the_admin_interface_stays_inside(tmp_path):
    """The port of the probes answers them and Prometheus, and nothing else."""
    async with named_services(1) as services, envoy_before(services, tmp_path) as (_, status):
        codes = {}
        for path in ("ready", "metrics", "quitquitquit", "config_dump"):
            url = f"http://127.0.0.1:{status}/{path}"
            try:
                with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
                    codes[path] = answer.status
            except urllib.error.HTTPError as error:
                codes[path] = error.code
    assert codes == {"ready": 200, "metrics": 200, "quitquitquit": 404, "config_dump": 404}
