"""`python -m earvoice.policy`: the policy service, which serves the public API, as a process."""

from __future__ import annotations

import sys

from earvoice.policy.settings import PolicySettings
from earvoice.runtime.bootstrap import run_service
from earvoice.runtime.engine import LoopLagSelector


def main() -> int:
    selector = LoopLagSelector()

    async def serve(settings: PolicySettings) -> None:
        # gRPC is imported here, after the environment variables that it reads have been set.
        from earvoice.policy import server  # noqa: PLC0415

        await server.serve(settings, selector)

    return run_service("policy", PolicySettings, serve, selector=selector)


if __name__ == "__main__":
    sys.exit(main())
