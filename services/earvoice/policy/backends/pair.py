"""The encoder and the decoder over gRPC: the models both serve, and a session on one of each."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.call import BackendTimeouts
from earvoice.policy.backends.replica_session import (
    DecoderSession,
    EncoderSession,
    ReplayBudget,
    SessionTerms,
)
from earvoice.policy.backends.replicas import (
    DECODER,
    ENCODER,
    BackendAccess,
    Replicas,
    is_refusal,
)
from earvoice.policy.settings import parse_target
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import EarvoiceError, ModelNotFoundError, NotReadyError, shown
from earvoice.runtime.session_limit import RETRY_AFTER_MS

_LOG = logging.getLogger("earvoice.policy.backends")

Model = types_pb2.ModelDescription


class Backends:
    """The encoder's and the decoder's replicas.

    Attributes:
        models: those with a ready encoder and a ready decoder, the one with the most such pairs
            first. Once there has been one, the list stays non-empty: that its replicas are lost
            shows only when a session is opened on them.
        replays: how often a session went on elsewhere because a replica was lost, by service.
        refused: sessions that no replica took, by the error's reason.
    """

    def __init__(
        self,
        encoder_target: str,
        decoder_target: str,
        loop_lag_s: Callable[[], float] = lambda: 0.0,
        timeouts: BackendTimeouts | None = None,
        access: BackendAccess | None = None,
    ) -> None:
        self._loop_lag_s = loop_lag_s
        self._timeouts = timeouts or BackendTimeouts()
        access = access or BackendAccess()
        self._encoders = Replicas(ENCODER, parse_target(encoder_target), access, self._refresh)
        self._decoders = Replicas(DECODER, parse_target(decoder_target), access, self._refresh)
        self._changed = asyncio.Event()
        self._warned_of: tuple[list[str], list[str]] | None = None
        self.models: list[Model] = []
        # Zeros too: an alert sees no increase in a series that begins with its first replay.
        self.replays: Counter[str] = Counter({ENCODER.name: 0, DECODER.name: 0})
        self.refused: Counter[str] = Counter()

    async def run(self) -> None:
        """Follow the replicas, until it is cancelled: then their connections are closed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._encoders.run())
            group.create_task(self._decoders.run())

    async def wait_until_ready(self) -> None:
        """Return once there is an encoder and a decoder of one model."""
        while not self.models:
            await self.changed()

    async def changed(self) -> None:
        """Return when a replica becomes ready, or is no longer."""
        await self._changed.wait()

    def ready_counts(self) -> dict[str, int]:
        """Return how many replicas are ready, by service; metrics are read in other threads."""
        return {
            replicas.kind.name: sum(replica.is_ready for replica in replicas.all)
            for replicas in (self._encoders, self._decoders)
        }

    def choose_model(self, name: str = "", model_hash: str = "") -> Model:
        """Return the model of this name and hash, each empty for any."""
        if not self.models:
            raise NotReadyError(self._what_is_missing(), retry_after_ms=RETRY_AFTER_MS)
        for model in self.models:
            if name in ("", model.name) and model_hash in ("", model.hash):
                return model
        allowed = ", ".join(sorted({repr(model.name) for model in self.models}))
        asked = f"model = {shown(name)}" if name else f"model hash = {shown(model_hash)}"
        raise ModelNotFoundError(f"{asked} is not served; allowed: {allowed}", allowed=allowed)

    @asynccontextmanager
    async def open(
        self,
        options: StreamOptions,
        model_hash: str,
        session_id: str,
        traceparents: Mapping[str, str],
    ) -> AsyncIterator[tuple[EncoderSession, DecoderSession]]:
        """Open a session on both; a message belongs to the trace that is set when it is sent."""
        budget = ReplayBudget(self.replays)
        terms = SessionTerms(
            options,
            model_hash,
            session_id,
            budget,
            self._timeouts,
            self._loop_lag_s,
            traceparents,
        )
        encoder = EncoderSession(self._encoders, terms)
        decoder = DecoderSession(self._decoders, terms)
        try:
            try:
                await encoder.open()
                await decoder.open()
            except EarvoiceError as error:
                if is_refusal(error):
                    self.refused[error.reason] += 1
                raise
            yield encoder, decoder
            # Their sessions are free again before ours is.
            await encoder.close()
            await decoder.close()
        finally:
            encoder.cancel()
            decoder.cancel()

    def _what_is_missing(self) -> str:
        missing = [
            replicas
            for replicas in (self._encoders, self._decoders)
            if not any(replica.is_ready for replica in replicas.all)
        ]
        if not missing:
            return "the encoder and the decoder serve different models"
        troubles = [f"the {each.kind.name} {each.trouble}" for each in missing if each.trouble]
        if troubles:
            return f"{' and '.join(troubles)}: this server's log says why"
        return f"no answer yet from {' and '.join(f'the {each.kind.name}' for each in missing)}"

    def _refresh(self) -> None:
        self._refresh_models()
        self._changed.set()
        self._changed = asyncio.Event()

    def _refresh_models(self) -> None:
        encoders, decoders = _ready_hashes(self._encoders), _ready_hashes(self._decoders)
        pairs = {name: min(encoders[name], decoders[name]) for name in encoders.keys() & decoders}
        if not pairs:
            self._warn_of_difference(sorted(encoders), sorted(decoders))
            return
        known = [model.hash for model in self.models]

        def rank(model: Model) -> tuple[int, int]:
            place = known.index(model.hash) if model.hash in known else len(known)
            return -pairs[model.hash], place

        described = {
            replica.model.hash: replica.model for replica in self._decoders.ready() if replica.model
        }
        self.models = sorted((described[name] for name in pairs), key=rank)

    def _warn_of_difference(self, encoders: list[str], decoders: list[str]) -> None:
        if encoders and decoders and self._warned_of != (encoders, decoders):
            self._warned_of = encoders, decoders
            _LOG.warning(
                "encoder and decoder serve different models",
                extra={"encoder": ", ".join(encoders), "decoder": ", ".join(decoders)},
            )


def _ready_hashes(replicas: Replicas) -> Counter[str]:
    return Counter(replica.model.hash for replica in replicas.ready() if replica.model)
