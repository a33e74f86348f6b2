"""The models that both services serve."""

from __future__ import annotations

import logging
from collections import Counter

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.pool import ReplicaPool
from earvoice.runtime.errors import ModelNotFoundError, NotReadyError, shown

_LOG = logging.getLogger("earvoice.policy.backends")

RETRY_AFTER_MS = 1000

Model = types_pb2.ModelDescription


class ModelFleet:
    """Says which models a session can have: those with a ready encoder and a ready decoder.

    Once there has been one, there always is: what became of its replicas is found out when a
    session is opened on them.

    Args:
        encoders: the encoder's replicas.
        decoders: the decoder's.
    """

    def __init__(self, encoders: ReplicaPool, decoders: ReplicaPool) -> None:
        self._encoders = encoders
        self._decoders = decoders
        self._models: list[Model] = []
        self._warned_of: tuple[list[str], list[str]] | None = None

    @property
    def models(self) -> list[Model]:
        """The models, the one first that most sessions can have."""
        return self._models

    def refresh(self) -> None:
        """Look at the replicas again."""
        encoders, decoders = _hashes(self._encoders), _hashes(self._decoders)
        rooms = {name: min(encoders[name], decoders[name]) for name in encoders.keys() & decoders}
        if not rooms:
            self._warn_of_difference(sorted(encoders), sorted(decoders))
            return
        known = [model.hash for model in self._models]

        def rank(model: Model) -> tuple[int, int]:
            place = known.index(model.hash) if model.hash in known else len(known)
            return -rooms[model.hash], place

        described = {
            replica.model.hash: replica.model for replica in self._decoders.ready() if replica.model
        }
        self._models = sorted((described[name] for name in rooms), key=rank)

    def choose(self, name: str = "", model_hash: str = "") -> Model:
        """Return the model for a session.

        Args:
            name: asked for by the client; empty for any.
            model_hash: that the session must stay with; empty for any.

        Raises:
            NotReadyError: encoder and decoder have not answered yet.
            ModelNotFoundError: there is none of that name or hash.
        """
        if not self._models:
            raise NotReadyError(
                "the encoder and the decoder have not answered yet", retry_after_ms=RETRY_AFTER_MS
            )
        for model in self._models:
            if name in ("", model.name) and model_hash in ("", model.hash):
                return model
        allowed = ", ".join(sorted({repr(model.name) for model in self._models}))
        asked = f"model = {shown(name)}" if name else f"model hash = {shown(model_hash)}"
        raise ModelNotFoundError(f"{asked} is not served; allowed: {allowed}", allowed=allowed)

    def _warn_of_difference(self, encoders: list[str], decoders: list[str]) -> None:
        if encoders and decoders and self._warned_of != (encoders, decoders):
            self._warned_of = encoders, decoders
            _LOG.warning(
                "encoder and decoder serve different models",
                extra={"encoder": ", ".join(encoders), "decoder": ", ".join(decoders)},
            )


def _hashes(pool: ReplicaPool) -> Counter[str]:
    return Counter(replica.model.hash for replica in pool.ready() if replica.model)
