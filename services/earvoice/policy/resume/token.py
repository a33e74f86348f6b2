"""Resume tokens: made of a session, and taken back as one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from earvoice.api.v1 import resume_state_pb2 as resume_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.resume.seal import ForgedError, Seal, parse_keys, random_key
from earvoice.policy.resume.session_message import read_session, session_message
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.resume_settings import ResumeSettings
from earvoice.policy.utterance import Utterance
from earvoice.runtime.errors import InvalidResumeTokenError, ModelNotFoundError

TOKEN_LIMIT_BYTES = 4096

_LOG = logging.getLogger("earvoice.policy.resume")

Model = types_pb2.ModelDescription


@dataclass(frozen=True)
class Bearer:
    """Whose token it is.

    Attributes:
        tenant: who may resume the session; empty without authentication.
        model: that translates it.
        session_id: for logs.
        traceparent: of the trace that the session's messages belong to, or empty.
    """

    tenant: str
    model: Model
    session_id: str
    traceparent: str


@dataclass(frozen=True)
class ResumedSession:
    """What a token stands for.

    Attributes:
        snapshot: the session.
        seq: of the message that the token came with.
        bearer: of the session that was interrupted.
        token: itself.
    """

    snapshot: SessionSnapshot
    seq: int
    bearer: Bearer
    token: bytes


class TokenMint:
    """Makes tokens and takes them back.

    Args:
        seal: signs them.
        lifetime_s: seconds that one is good for.
        unix_s: Unix time now.
        monotonic_s: the sessions' clock now.
    """

    def __init__(
        self,
        seal: Seal,
        lifetime_s: float,
        unix_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._seal = seal
        self._lifetime_s = lifetime_s
        self._unix_s = unix_s
        self._monotonic_s = monotonic_s

    def make(self, snapshot: SessionSnapshot, seq: int, bearer: Bearer) -> bytes:
        """Return a token, 4 KiB at most; nothing where more would have to be said.

        Args:
            snapshot: the session.
            seq: of the message that the token comes with.
            bearer: whose it is.
        """
        message = session_message(snapshot, bearer.model, self._unix_at_zero_s())
        message.expires_unix_ms = int((self._unix_s() + self._lifetime_s) * 1000)
        message.tenant = bearer.tenant
        message.model_hash = bearer.model.hash
        message.session_id = bearer.session_id
        message.traceparent = bearer.traceparent
        message.seq = seq
        token = self._seal.sign(message.SerializeToString())
        return token if len(token) <= TOKEN_LIMIT_BYTES else b""

    def take(self, token: bytes, tenant: str, find_model: Callable[[str], Model]) -> ResumedSession:
        """Return the session that a token stands for.

        Args:
            token: from a client.
            tenant: who the client is.
            find_model: gives the model with a hash.

        Raises:
            InvalidResumeTokenError: it is forged or expired, another tenant's, another model's or
                another version's.
            NotReadyError: no model is served yet.
        """
        message = self._opened(token)
        late_s = self._unix_s() - message.expires_unix_ms / 1000
        if late_s > 0:
            raise InvalidResumeTokenError(f"it expired {late_s:.0f} s ago", "expired")
        if message.tenant != tenant:
            raise InvalidResumeTokenError("it was given to another tenant", "tenant")
        try:
            model = find_model(message.model_hash)
        except ModelNotFoundError as error:
            raise InvalidResumeTokenError(
                f"its session's model {message.model_hash} is not served here", "model"
            ) from error
        snapshot = self._read(message, model)
        bearer = Bearer(tenant, model, message.session_id, message.traceparent)
        return ResumedSession(snapshot, message.seq, bearer, token)

    def _opened(self, token: bytes) -> resume_pb.ResumeState:
        if len(token) > TOKEN_LIMIT_BYTES:
            raise InvalidResumeTokenError(
                f"it has {len(token)} bytes; allowed: {TOKEN_LIMIT_BYTES}", "forged"
            )
        try:
            return resume_pb.ResumeState.FromString(self._seal.verify(token))
        except (ForgedError, DecodeError) as error:
            raise InvalidResumeTokenError("none of our keys has signed it", "forged") from error

    def _read(self, message: resume_pb.ResumeState, model: Model) -> SessionSnapshot:
        try:
            snapshot = read_session(message, model, self._unix_at_zero_s())
            # Whether the policy can read its memory shows when it is given it.
            Utterance.restored(snapshot.utterance, make_policy(snapshot.options.policy))
        except (ValueError, KeyError) as error:
            raise InvalidResumeTokenError("another version has made it", "version") from error
        return snapshot

    def _unix_at_zero_s(self) -> float:
        return self._unix_s() - self._monotonic_s()


def build_mint(settings: ResumeSettings) -> TokenMint:
    """Return the service's mint; one without configured keys takes back its own tokens only."""
    if settings.resume_keys is not None:
        keys = parse_keys(settings.resume_keys.get_secret_value())
    else:
        keys = [random_key()]
        _LOG.info("no RESUME_KEYS: sessions can be resumed only here, and not after a restart")
    return TokenMint(Seal(keys), settings.resume_lifetime_ms / 1000)
