"""``earvoice COMMAND``."""

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    # gRPC's core writes to standard error even about connections that end normally.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.stderr is None:
        # Standard error is closed: messages are lost, which is no reason to fail.
        sys.stderr = open(os.devnull, "w", encoding="utf8")  # noqa: PTH123, SIM115 - as long as we run
    try:
        # Imported here, so that Ctrl-C during the import also ends the command with one line.
        from earvoice.cli.command_line import run  # noqa: PLC0415

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("earvoice: ended by SIGINT", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
