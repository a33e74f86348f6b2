"""Where `CI=true`, a test that is skipped for want of a program has failed."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

HOOKS = "from tests.absence import pytest_make_collect_report, pytest_runtest_makereport"
SKIPS = {
    "test": "import pytest\ndef test_it(): pytest.skip({!r})",
    "module": "import pytest\npytest.skip({!r}, allow_module_level=True)",
}
NO_PROGRAM = "promtool is not installed"
NO_DATA = "the recordings are not here (EARVOICE_SHARED_DATA or ../shared)"


@pytest.mark.parametrize("place", SKIPS)
@pytest.mark.parametrize(
    ("environment", "reason", "fails"),
    [
        ({"CI": "true"}, NO_PROGRAM, True),
        ({"CI": "true"}, NO_DATA, False),
        ({}, NO_PROGRAM, False),
    ],
)
def test_a_skip_for_want_of_a_program_is_a_failure(tmp_path, place, environment, reason, fails):
    """Of a test and of a module; not for data from elsewhere, and not on a person's machine."""
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "test_it.py").write_text(SKIPS[place].format(reason))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", tmp_path],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            # Those that are installed take longer to load than all the rest.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("everything that can be installed must be there" in run.stdout) is fails, run.stdout
    assert ("failed" in run.stdout or "error" in run.stdout) is fails
