"""An issuer of JSON Web Tokens: keys of its own, and a server that publishes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER = "https://issuer.example"
AUDIENCE = "earvoice"


class Issuer:
    """Signs tokens with its newest key; publishes all of its keys."""

    def __init__(self) -> None:
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """Sign with a new key from now on."""
        self._key_id = key_id
        self._keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    def token(self, **changes: object) -> str:
        """A token of the tenant `calls` that is good for a minute, with some claims changed."""
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "calls",
            "exp": datetime.now(UTC) + timedelta(minutes=1),
        } | changes
        given = {name: value for name, value in claims.items() if value is not None}
        key = self._keys[self._key_id]
        return jwt.encode(given, key, algorithm="ES256", headers={"kid": self._key_id})

    def key_set(self) -> str:
        keys = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            | {"kid": key_id, "use": "sig", "alg": "ES256"}
            for key_id, key in self._keys.items()
        ]
        return json.dumps({"keys": keys})


@contextmanager
def published(issuer: Issuer) -> Iterator[tuple[str, list[str]]]:
    """Serve an issuer's keys; give their address, and the paths that were asked for."""
    asked: list[str] = []

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.key_set().encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Keys)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
