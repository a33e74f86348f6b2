"""The encoder and the decoder over gRPC."""

from earvoice.policy.backends.pair import Backends

__all__ = ["Backends"]
