"""Authorities and certificates for tests of TLS, made when they are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from earvoice.runtime.files import atomic_write


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and of its key, PEM."""

    certificate_file: Path
    key_file: Path


class Authority:
    """An authority that issues certificates into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *hosts: str) -> Certificate:
        """Write a certificate for some hosts, over an older one of the same name."""
        issued = self._authority.issue_cert(*hosts or ("127.0.0.1", "localhost"))
        files = Certificate(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        # As one rotates them: a reader never sees half a file.
        for path, content in (
            (files.key_file, issued.private_key_pem.bytes()),
            (files.certificate_file, b"".join(p.bytes() for p in issued.cert_chain_pems)),
        ):
            with atomic_write(path) as fresh:
                fresh.write_bytes(content)
        return files
