"""Whether the gateway of this machine lives, for a container's health check: exit status 0 or 1.

``python -m earvoice.gateway.probe`` reads the gateway's own settings.
"""

from __future__ import annotations

import http.client
import ssl
import sys

from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.settings import load_settings
from earvoice.runtime.tls import reachable_host

_TIMEOUT_S = 4.0


def main() -> int:
    settings = load_settings(GatewaySettings)
    host = reachable_host(settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=_TIMEOUT_S)
    if settings.tls_certificate_file is not None:
        # It is asked by its address, which its certificate need not name.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, settings.port, timeout=_TIMEOUT_S, context=context
        )
    try:
        connection.request("GET", "/healthz")
        return 0 if connection.getresponse().status == http.client.OK else 1
    except OSError:
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
