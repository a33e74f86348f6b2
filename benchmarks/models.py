"""What the networks cost on this machine, and how close they come to its peak in matrix products.

    python benchmarks/models.py --quick
    python benchmarks/models.py --presets paper shipped --threads 1 2 --json models.json

Each combination of network, number format and number of threads runs in its own process, so that
its memory can be measured. Weights are random; `network_cost.py` says how the work is made that of
trained ones. One thread is measured in processor time, more in wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

PRESETS = ("paper", "papi-2022-conformer", "papi-2022-transformer", "shipped")
ROWS = (
    ("ceiling of products, GFLOP/s", "ceiling_gflops", 0),
    *(
        row
        for seconds in (1, 4, 10, 16, 20)
        for row in (
            (f"encoder, {seconds} s, ms", f"encoder_{seconds}s_ms", 1),
            (f"encoder, {seconds} s, share of the ceiling", f"encoder_{seconds}s_share", 3),
        )
    ),
    ("prefill of 31 tokens over 134 states, ms", "prefill_ms", 2),
    ("step, ms", "step_ms", 2),
    ("step of 4 sessions, ms", "step_of_4_ms", 2),
    ("step of 16 sessions, ms", "step_of_16_ms", 2),
    ("step of a beam of 5, ms", "beam_step_ms", 2),
    ("EDAtt, real-time factor", "edatt_rtf", 3),
    ("LA-2, real-time factor", "la2_rtf", 3),
    ("LA-2 without drafts, real-time factor", "la2_without_drafts_rtf", 3),
    ("LA-2 : EDAtt", "la2_to_edatt", 3),
    ("resident memory before computing, MiB", "resident_mib", 0),
    ("resident memory after all of it, MiB", "final_mib", 0),
)
QUICK_PREFIXES_S = (4, 10)
PREFIXES_S = (1, 4, 10, 16, 20)
RUN_S, QUICK_RUN_S = 20.0, 6.4


def main() -> None:
    arguments = _arguments()
    if arguments.one:
        _measure_here(*arguments.one, arguments)
        return
    results = {}
    for preset in arguments.presets:
        columns = {}
        for precision in arguments.precisions:
            for threads in arguments.threads:
                columns[f"{precision}, {threads} thread{'s' * (threads > 1)}"] = _measured(
                    preset, precision, threads, arguments
                )
        _print_table(preset, columns)
        results[preset] = columns
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")


def _measured(
    preset: str, precision: str, threads: int, arguments: argparse.Namespace
) -> Mapping[str, float]:
    command = [sys.executable, __file__, "--one", preset, precision, str(threads)]
    command += ["--quick"] * arguments.quick + ["--no-run"] * arguments.no_run
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    facts: Mapping[str, float] = json.loads(done.stdout)
    return facts


def _measure_here(preset: str, precision: str, threads: str, arguments: argparse.Namespace) -> None:
    from network_cost import Effort, NetworkCost  # noqa: PLC0415 - after OMP_NUM_THREADS is set

    torch.set_num_threads(int(threads))
    prefixes = QUICK_PREFIXES_S if arguments.quick else PREFIXES_S
    run_s = 0.0 if arguments.no_run else QUICK_RUN_S if arguments.quick else RUN_S
    effort = Effort(prefixes, run_s, rounds=6 if arguments.quick else 12)
    print(json.dumps(NetworkCost(preset, precision, effort).measure()))


def _print_table(preset: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    widths = [max(len(name), 8) for name in columns]
    print(f"\n{preset:45}" + "".join(f"  {n:>{w}}" for n, w in zip(columns, widths, strict=True)))
    for title, name, digits in ROWS:
        if all(name in facts for facts in columns.values()):
            cells = [
                f"  {facts[name]:>{width}.{digits}f}"
                for facts, width in zip(columns.values(), widths, strict=True)
            ]
            print(f"{title:45}" + "".join(cells))


def _precisions() -> list[str]:
    """Those that this machine computes natively: others only show how slow emulation is."""
    fast_bfloat16 = torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 - it has no public name
    return ["fp32", *["bf16"] * fast_bfloat16, "int8"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=PRESETS)
    parser.add_argument(
        "--precisions", nargs="+", choices=("fp32", "bf16", "int8"), default=_precisions()
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="fewer lengths, rounds and seconds")
    parser.add_argument("--no-run", action="store_true", help="single passes alone")
    parser.add_argument("--json", type=Path, help="file to write all numbers to")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
