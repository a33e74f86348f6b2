"""`python -m tests.faults`: break things under live streams, and tell what became of the words."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from earvoice.runtime.model_settings import shipped_model_path
from tests.faults.bench import BenchPlan, run_bench, say
from tests.faults.isolation import isolate
from tests.faults.row import Row
from tests.faults.table import Table


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition(": ")[2])
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose names hold these")
    parser.add_argument("--replicas", nargs="+", type=int, choices=(1, 2), default=[2, 1])
    parser.add_argument("--streams", type=int, help="instead of 4 on two replicas and 10 on one")
    parser.add_argument("--seconds", type=int, help="length of every stream")
    parser.add_argument("--seed", type=int, default=1, help="says when faults happen")
    parser.add_argument("--page", type=Path, help="write the table to this page")
    parser.add_argument("--logs", type=Path, help="keep the services' logs in this empty folder")
    return parser.parse_args()


async def run(plan: BenchPlan, folder: Path, page: Path | None) -> bool:
    """Run all rows, keep the page up with them, and return whether all are good."""
    load = os.getloadavg()[0]
    machine = (
        f"Taken with {_model()} on {os.cpu_count()} cores,\n{platform.system()} "
        f"{platform.machine()}; load average {load:.1f} when it began."
    )
    rows: list[Row] = []
    async for some in run_bench(plan, folder):
        rows += some
        if page:
            text = Table("make faults", machine, rows).page()
            await asyncio.to_thread(page.write_text, text, encoding="utf8")
    return all(row.is_good for row in rows)


def _model() -> str:
    """Name and version of the model that the replicas hold."""
    folder = Path(os.environ.get("EARVOICE_DECODER_MODEL_PATH") or shipped_model_path())
    model = json.loads((folder / "config.json").read_text(encoding="utf8"))["model"]
    return f"version {model['version']} of the model `{model['name']}`"


def main() -> int:
    """Run and return the exit code."""
    arguments = read_arguments()
    isolated = isolate(__spec__.parent)
    if not isolated:
        say("no root, or no iptables: the rows about lost packets and a full disk are left out")
    plan = BenchPlan(
        only=arguments.only,
        replica_counts=arguments.replicas,
        stream_count=arguments.streams,
        stream_s=arguments.seconds,
        seed=arguments.seed,
        isolated=isolated,
    )
    with tempfile.TemporaryDirectory(prefix="earvoice-faults-") as temporary:
        folder = arguments.logs or Path(temporary)
        return 0 if asyncio.run(run(plan, folder, arguments.page)) else 1


sys.exit(main())
