"""A policy is added as CONTRIBUTING says: its own module, and one row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_policy import shown_policy

ROOT = Path(__file__).parents[3]
POLICIES = ROOT / "services" / "earvoice" / "policies"

WHAT_FOLLOWS = """
import argparse
from earvoice.api.v1 import types_pb2
from earvoice.cli.translate_arguments import add_policy_arguments
from earvoice.policies import POLICIES, format_policy, parse_policy
from earvoice.policies.message import write_policy
from earvoice.policy.wire.config import resolved_policy
from tools.document_policies import policies_page

policy = parse_policy("share:share=0.25")
assert format_policy(policy) == "share:share=0.25"
message = write_policy(policy)
assert resolved_policy(message, types_pb2.ModelDescription(), POLICIES) == policy
parser = argparse.ArgumentParser()
add_policy_arguments(parser)
assert ", share," in " ".join(parser.format_help().split())
page = policies_page("<!-- parameters of share -->\\n<!-- end -->")
assert "| `share` | 0 to 1 | 0.5 | share of the new tokens that is committed |" in page
"""
LAWS = """
import sys
import pytest
from earvoice.policies import POLICIES
from tests.unit.policy import every_policy

every_policy.PARAMETERS[:] = [POLICIES["share"](), POLICIES["share"](share=1.0)]
laws = "tests/unit/policy/test_decision_laws.py"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", laws]))
"""


@pytest.fixture
def services(tmp_path: Path) -> Path:
    """A copy of the policies with one more, which hides the original."""
    folder = tmp_path / "earvoice" / "policies"
    shutil.copytree(POLICIES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "share.py").write_text(shown_policy(), encoding="utf8")
    registry = folder / "registry.py"
    rows = registry.read_text(encoding="utf8")
    rows = rows.replace("            Offline,\n", "            Offline,\n            Share,\n")
    rows = rows.replace(
        "from earvoice.policies.wait_k",
        "from earvoice.policies.share import Share\nfrom earvoice.policies.wait_k",
    )
    registry.write_text(rows, encoding="utf8")
    return tmp_path


@pytest.mark.parametrize("script", [WHAT_FOLLOWS, LAWS], ids=["what follows", "the laws"])
def test_a_module_and_a_row_are_all(services: Path, script: str):
    """Wire, text, command line and page have it, and it keeps the laws."""
    found = os.pathsep.join([str(services), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": found},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
