"""How the lab's scripts end (`python -m earvoice.training` and the like)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from earvoice.cli.command import CommandError
from earvoice.models.errors import ModelError


def run_script(main: Callable[[], None], *failures: type[Exception]) -> None:
    """Run `main`; what its user can mend is a line on standard error, with status 1.

    Args:
        failures: the script's own exceptions of that kind.
    """
    mendable: tuple[type[Exception], ...] = (CommandError, ModelError, OSError, *failures)
    try:
        main()
    except mendable as error:
        sys.exit(str(error))
