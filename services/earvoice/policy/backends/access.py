"""How we are let in by the services behind us."""

from __future__ import annotations

from dataclasses import dataclass, replace

import grpc

from earvoice.runtime.tls import ChannelTls
from earvoice.runtime.transport import bearer_metadata, open_channel

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BackendAccess:
    """What our channels and calls show.

    Attributes:
        tls: None for plain connections.
        token: shown with each call; empty for none.
    """

    tls: ChannelTls | None = None
    token: str = ""

    @property
    def metadata(self) -> Metadata:
        """What each call carries."""
        return bearer_metadata(self.token)

    def open_channel(self, address: str) -> grpc.aio.Channel:
        """Return a channel to a replica.

        Raises:
            TlsFileError: a certificate, key or authority cannot be used.
        """
        return open_channel(address, tls=self.tls)

    def named(self, name: str) -> BackendAccess:
        """Return the same for addresses that a name led to: certificates bear the name."""
        if self.tls is None or self.tls.server_name:
            return self
        return replace(self, tls=replace(self.tls, server_name=name))
