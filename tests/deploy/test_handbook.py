"""docs/operations.md against what it speaks of."""

import re
import subprocess
import sys

import yaml

from tests.deploy.tool import OBSERVABILITY, ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf8")
RULES = OBSERVABILITY / "prometheus" / "rules" / "earvoice.yml"


def test_every_alert_is_explained():
    """What it means and what to do, in a row of its own; and no other is."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert set(re.findall(r"^\| `(Earvoice\w+)` \|", PAGE, re.MULTILINE)) == alerts


def test_the_capacity_is_what_the_command_says():
    """The table, and the size of a cell."""
    command = [sys.executable, ROOT / "benchmarks" / "fleet_size.py"]
    whole = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line for line in whole.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == 4
    assert [row for row in rows if row not in PAGE] == []
    cell = subprocess.run(
        [*command, "--streams", "2000"], check=True, capture_output=True, text=True
    )
    _, encoders, decoders, policies, *_, connections = re.findall(
        r"[\d.,]+", cell.stdout.splitlines()[-1]
    )
    prose = " ".join(PAGE.split())
    assert f"{encoders} encoders, {decoders} decoders, {policies} policies" in prose
    assert f"{connections} connections" in prose
