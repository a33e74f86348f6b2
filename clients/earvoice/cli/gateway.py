"""``earvoice gateway``: the gateway in this process; ``gateway token``: a token for it."""

from __future__ import annotations

import argparse
from datetime import timedelta

from earvoice.cli.command import Command, CommandError, ExitCode, number_from, require_extra
from earvoice.cli.local_services import GATEWAY, read_settings, variable_prefix_of
from earvoice.cli.up import add_listening_arguments, run_service
from earvoice.runtime.errors import InvalidFieldError

LONGEST_MINUTES = 60 * 24 * 366


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_listening_arguments(parser)
    actions = parser.add_subparsers(dest="action", metavar="[token]")
    token = actions.add_parser("token", help="print an access token", description=_TOKEN)
    token.add_argument("scope", choices=("speak", "read"), help="what its bearer may do")
    token.add_argument(
        "--stream", default="*", help="name of the one stream that it is for (any stream)"
    )
    token.add_argument(
        "--minutes",
        type=number_from(0.1, LONGEST_MINUTES, float),
        default=60.0,
        help="how long it is valid (%(default)g)",
    )


_TOKEN = f"""Prints an access token, signed with {variable_prefix_of(GATEWAY)}TOKEN_KEY: the gateway
lets in who shows one."""


def _run(options: argparse.Namespace) -> int:
    require_extra(GATEWAY)
    if options.action == "token":
        print(_issue_token(options.scope, options.stream, options.minutes))
        return ExitCode.DONE
    return run_service(GATEWAY, options)


def _issue_token(scope: str, stream: str, minutes: float) -> str:
    from earvoice.gateway.access import ANY_STREAM, issue_token  # noqa: PLC0415 - the extra's
    from earvoice.gateway.messages import check_stream_name  # noqa: PLC0415
    from earvoice.gateway.settings import GatewaySettings  # noqa: PLC0415

    key = read_settings(GatewaySettings).token_key
    try:
        if stream != ANY_STREAM:
            check_stream_name("--stream", stream)
    except InvalidFieldError as error:
        raise CommandError(str(error)) from error
    if key is None:
        raise CommandError(
            f"{variable_prefix_of(GATEWAY)}TOKEN_KEY is not set: a token is signed with the "
            "gateway's own"
        )
    lifetime = timedelta(minutes=minutes)
    return issue_token(
        key.get_secret_value(), "read" if scope == "read" else "speak", stream, lifetime
    )


COMMAND = Command(_add_arguments, _run, "run the gateway for browsers, or print a token for it")
