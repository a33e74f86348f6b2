"""`python -m earvoice.runtime.probe HOST:PORT`: exit with 0 if a service is SERVING, else 1."""

from __future__ import annotations

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 3.0


def main() -> int:
    """Ask once; return 0 for SERVING, else 1, and say on standard error what was answered."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.runtime.probe", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT", help="a service's HEALTH_PORT, or its PORT")
    parser.add_argument("--service", default="", help="full name; empty asks for the whole server")
    options = parser.parse_args()
    try:
        answer = ask_health(options.address, options.service)
    except grpc.RpcError as error:
        print(f"{options.address}: {error.code().name}: {error.details()}", file=sys.stderr)  # noqa: T201
        return 1
    if answer != health_pb2.HealthCheckResponse.SERVING:
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer)
        print(f"{options.address}: {name}", file=sys.stderr)  # noqa: T201 - a program's answer
        return 1
    return 0


def ask_health(address: str, service: str) -> health_pb2.HealthCheckResponse.ServingStatus:
    """Return what a plain, unencrypted health service says."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        return stub.Check(request, timeout=TIMEOUT_S).status


if __name__ == "__main__":
    sys.exit(main())
