"""The gateway's application: routes to the dialects, the page and the readers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from earvoice.client import TranslationError
from earvoice.gateway import native, openai_dialect, twilio
from earvoice.gateway.access import shown_token
from earvoice.gateway.connection import FAULT, Connection, Describe, telling_failures
from earvoice.gateway.door import Door
from earvoice.gateway.messages import describe_error
from earvoice.gateway.published import PublishedStream
from earvoice.gateway.readers import SECURITY_HEADERS, find_stream, languages_of, reader_routes
from earvoice.gateway.recordings import recording_route
from earvoice.runtime.errors import EarvoiceError, InternalError

PAGE = Path(__file__).with_name("page")
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "DEADLINE_EXCEEDED": 408,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
_NOT_FOUND, _NOT_ALLOWED = 404, 405
_READY_TIMEOUT_S = 2.0
_LOG = logging.getLogger(__name__)


def build_app(door: Door) -> Starlette:  # noqa: C901 - one small function for each address
    def socket_route(
        path: str,
        serve: Callable[[Connection], Awaitable[None]],
        describe: Describe | None = describe_error,
        subprotocols: tuple[str, ...] = (),
    ) -> WebSocketRoute:
        async def endpoint(websocket: WebSocket) -> None:
            offered = [name for name in subprotocols if name in websocket["subprotocols"]]
            await websocket.accept(subprotocol=offered[0] if offered else None)
            connection = Connection(websocket, door.settings)
            tell = partial(connection.tell_error, describe) if describe else None
            async with telling_failures(_LOG, connection.close, tell):
                door.gatekeeper.check_origin(websocket)
                with door.counted():
                    await serve(connection)

        return WebSocketRoute(path, endpoint)

    async def speak(connection: Connection) -> None:
        await native.serve_speaker(door, connection, shown_token(connection.websocket))

    async def speak_openai(connection: Connection) -> None:
        await openai_dialect.serve_speaker(door, connection, shown_token(connection.websocket))

    async def speak_twilio(connection: Connection) -> None:
        await twilio.serve_call(door, connection)

    async def read(connection: Connection) -> None:
        await _serve_reader(connection, find_stream(door, connection.websocket))

    async def list_models(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        token = door.gatekeeper.admit(shown_token(request), "speak").server_token
        catalog = await door.client.with_token(token).list_models()
        models = [
            {item.name: getattr(model, item.name) for item in fields(model)}
            for model in catalog.models
        ]
        body = json.dumps({"models": models, "policies": catalog.policies}, default=str)
        return Response(body, media_type="application/json")

    async def is_ready(_: Request) -> Response:
        if door.is_draining:
            return PlainTextResponse("draining", status_code=503)
        await door.check_server(_READY_TIMEOUT_S)
        return PlainTextResponse("ready")

    async def is_alive(_: Request) -> Response:
        return PlainTextResponse("alive")

    routes: list[BaseRoute] = [
        socket_route("/v1/translate", speak),
        socket_route(
            "/v1/realtime/translations",
            speak_openai,
            openai_dialect.describe_error,
            openai_dialect.SUBPROTOCOLS,
        ),
        socket_route("/v1/twilio", speak_twilio, describe=None),
        socket_route("/v1/streams/{name}", read),
        *reader_routes(door),
        recording_route(door),
        Route("/v1/models", list_models),
        Route("/readyz", is_ready),
        Route("/healthz", is_alive),
        Mount("/", _Page(directory=PAGE, html=True)),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await door.close()

    return Starlette(
        routes=routes,
        # Lets the scripts of other pages read the answers that the origin check lets them have.
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=door.settings.allowed_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
                expose_headers=["Retry-After"],
            )
        ],
        lifespan=lifespan,
        exception_handlers={
            EarvoiceError: _answer_failure,
            TranslationError: _answer_failure,
            HTTPException: _answer_http_failure,
            ClientDisconnect: _answer_nobody,
            Exception: _answer_fault,
        },
    )


class _Page(StaticFiles):
    """The page's files: browsers revalidate them at each visit, so a new version shows at once."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update({**SECURITY_HEADERS, "Cache-Control": "no-cache"})
        return response


async def _serve_reader(connection: Connection, stream: PublishedStream) -> None:
    async def listen() -> None:
        while True:  # ignore what a reader sends; this raises once it has gone
            await connection.receive(None, "the reader's end")

    languages = languages_of(connection.websocket, stream)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        async for message in stream.read(languages):
            await connection.send(message)
        listening.cancel()


def _answer_failure(_: Request, error: Exception) -> Response:
    assert isinstance(error, EarvoiceError | TranslationError)  # noqa: S101 - see build_app
    content = describe_error(error)
    headers: Mapping[str, str] = {}
    if content["retry_after_ms"] is not None:
        headers = {"Retry-After": str(-(-content["retry_after_ms"] // 1000))}
    status = _HTTP_STATUS.get(content["code"], 500)
    return JSONResponse({"error": content}, status_code=status, headers=headers)


def _answer_fault(request: Request, _: Exception) -> Response:
    """A fault of ours, which the server logs."""
    return _answer_failure(request, InternalError(FAULT))


def _answer_nobody(_: Request, error: Exception) -> Response:
    """A caller that left in mid-request reads no answer, and that is no fault of ours."""
    del error
    return Response(status_code=400)


def _answer_http_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - see build_app
    status, detail, headers = error.status_code, error.detail, error.headers
    # The page's files, at the end of the routes, are looked for at every path, and only got.
    for route in request.app.routes if status in (_NOT_FOUND, _NOT_ALLOWED) else ():
        if isinstance(route, Route | WebSocketRoute) and route.path_regex.match(request.url.path):
            if isinstance(route, Route):
                status, detail = _NOT_ALLOWED, "Method Not Allowed"
                headers = {"Allow": ", ".join(sorted(route.methods or ()))}
            else:
                status, detail, headers = _NOT_FOUND, "a WebSocket is opened here", None
    message = f"{request.method} {request.url.path}: {detail}"
    return JSONResponse({"error": {"message": message}}, status_code=status, headers=headers)
