"""The OpenAI translations dialect, spoken by the openai package's own client."""

from __future__ import annotations

import asyncio
import base64
import json
import os

import openai
import pytest
import soundfile
from websockets.exceptions import ConnectionClosedError

from tests.certificates import Authority
from tests.deploy.tool import NODE_MODULES, node_package, program
from tests.e2e.calling import SPEECH
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import run_gateway

NODE_CLIENT = """
import OpenAI from 'openai';
import { OpenAIRealtimeTranslationWS } from 'openai/realtime/translations/ws';

const [, baseURL, chunk] = process.argv;
const client = new OpenAI({ apiKey: 'none', baseURL });
const stream = await OpenAIRealtimeTranslationWS.create(client, { model: 'any' });
stream.on('event', (event) => console.log(JSON.stringify(event)));
stream.on('session.created', () => {
  stream.send({ type: 'session.update', session: { audio: { output: { language: 'de' } } } });
  const sound = { type: 'session.input_audio_buffer.append', audio: chunk };
  for (let i = 0; i < 2; i++) stream.send(sound);
  stream.session.close();
});
"""
SOUND, _ = soundfile.read(SPEECH, frames=4_800, dtype="int16")
CHUNK = base64.b64encode(SOUND.tobytes()).decode()


async def converse(address, *, language="de", transcription=None, chunks=2):
    """Stream some audio as the package does, and return every event of the server."""
    client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{address}/v1")
    async with client.realtime.translations.connect(model="any") as connection:
        audio = {"output": {"language": language}, "input": {"transcription": transcription}}
        await connection.session.update(session={"audio": audio})
        for _ in range(chunks):
            await connection.session.input_audio_buffer.append(audio=CHUNK)
        await connection.session.close()
        return [event async for event in connection]


async def test_the_packages_client_gets_append_only_deltas():
    """Deltas carry their own blanks; the session is closed as the dialect says."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as server, run_gateway(server) as (address, _):
        events = await converse(address)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["session.created", "session.updated"]
    assert kinds[-1] == "session.closed"
    deltas = [e.delta for e in events if e.type == "session.output_transcript.delta"]
    assert "".join(deltas) == "Guten Tag."
    assert service.configs[0].sample_rate_hertz == 24_000
    assert b"".join(service.audio) == base64.b64decode(CHUNK) * 2
    assert len({event.event_id for event in events}) == len(events)


async def test_the_npm_packages_client_gets_append_only_deltas(tmp_path):
    """The same through Node, whose package checks every event's fields and speaks TLS alone."""
    node_package("openai")
    authority = Authority(tmp_path)
    own = authority.issue("gateway")
    files = {"tls_certificate_file": own.certificate_file, "tls_key_file": own.key_file}
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as server, run_gateway(server, **files) as (address, _):
        process = await asyncio.create_subprocess_exec(
            *(program("node"), "--input-type=module", "--eval", NODE_CLIENT),
            *(f"https://{address}/v1", CHUNK),
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(authority.file)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=NODE_MODULES.parent,
        )
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    events = [json.loads(line) for line in output.splitlines()]
    assert events[-1]["type"] == "session.closed"
    deltas = [e["delta"] for e in events if e["type"] == "session.output_transcript.delta"]
    assert "".join(deltas) == "Guten Tag."
    assert b"".join(service.audio) == base64.b64decode(CHUNK) * 2


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_source_is_told_where_it_was_asked_for(wanted):
    """The input's transcript is an event of its own."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, _):
        events = await converse(address, transcription={"model": "own"} if wanted else None)
    assert service.configs[0].enable_source_transcript == wanted
    heard = [e.delta for e in events if e.type == "session.input_transcript.delta"]
    assert heard == (["heard "] if wanted else [])


@pytest.mark.parametrize(
    "change", [{"output": {"language": "es"}}, {"input": {"transcription": {"model": "own"}}}]
)
async def test_what_a_session_began_with_is_kept(change):
    """A change is refused, and not confirmed before."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{address}/v1")
        async with client.realtime.translations.connect(model="any") as connection:
            await connection.session.update(session={"audio": {"output": {"language": "de"}}})
            await connection.session.input_audio_buffer.append(audio=CHUNK)
            await connection.session.update(session={"audio": change})
            events = []
            with pytest.raises(ConnectionClosedError, match="keeps its language"):
                async for event in connection:
                    events.append(event)  # noqa: PERF401 - what comes before the end stays
    assert [event.type for event in events].count("session.updated") == 1
    assert events[-1].error.code == "out_of_order"


async def test_a_policy_service_that_is_not_there_has_a_code():
    """GRPC gives a status and no reason."""
    async with run_gateway("127.0.0.1:1") as (address, _):
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{address}/v1")
        async with client.realtime.translations.connect(model="any") as connection:
            await connection.session.update(session={"audio": {"output": {"language": "de"}}})
            await connection.session.input_audio_buffer.append(audio=CHUNK)
            events = []
            with pytest.raises(ConnectionClosedError):
                async for event in connection:
                    events.append(event)  # noqa: PERF401 - what comes before the end stays
    assert (events[-1].error.type, events[-1].error.code) == ("server_error", "unavailable")


@pytest.mark.parametrize("content", [{"audio": "ö"}, {"audio": None}, {}])
async def test_audio_that_is_not_base64_is_an_error_event(content):
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{address}/v1")
        async with client.realtime.translations.connect(model="any") as connection:
            await connection.send({"type": "session.input_audio_buffer.append", **content})
            _, error = await connection.recv(), await connection.recv()
    assert error.error.code == "invalid_audio"


async def test_a_session_without_a_language_is_an_error_event():
    """What is missing is named, in the dialect's own form."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{address}/v1")
        async with client.realtime.translations.connect(model="any") as connection:
            await connection.session.input_audio_buffer.append(audio=CHUNK)
            created, error = await connection.recv(), await connection.recv()
    assert created.type == "session.created"
    assert error.error.code == "out_of_order"
    assert "session.audio.output.language" in error.error.message
