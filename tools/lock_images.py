"""Write what the images install, with hashes, into `deploy/docker/locked/`: `make locks`.

Versions come from constraints.txt; packages that it does not name are resolved afresh, and so are
those that make the wheel, which no test environment shares. The torch
without CUDA comes from where pip finds it (`PIP_FIND_LINKS`, or `PIP_EXTRA_INDEX_URL`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "deploy" / "docker" / "locked"
# Each build of torch is for one kind of processor; the others' hashes would be of no use.
PLATFORM = "x86_64-manylinux_2_28"
PYTHON = "3.11"
BILL_OF_MATERIALS = "cyclonedx-bom==7.5.0"
EXTRAS = {"policy": ("policy", "auth"), "gateway": ("gateway",)}
ENGINES = ("encoder", "decoder")
TORCH = {"engine": "torch==2.13.0+cpu", "engine-cuda": "torch==2.13.0"}


def main() -> int:
    LOCKED.mkdir(exist_ok=True)
    try:
        for name, extras in EXTRAS.items():
            lock(name, extras)
        for name, torch in TORCH.items():
            # No links for the others, or they would get the build without CUDA.
            lock(name, ENGINES, torch, links=name == "engine")
        lock("build", (), *build_tools(), constrained=False)
    except subprocess.CalledProcessError as error:
        print(f"locks could not be written: {error}", file=sys.stderr)
        return 1
    return 0


def build_tools() -> list[str]:
    """Return what makes the wheel and the bill of materials; none of it is shipped."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return [*tomllib.load(file)["build-system"]["requires"], BILL_OF_MATERIALS]


def lock(
    name: str,
    extras: tuple[str, ...],
    *wanted: str,
    links: bool = False,
    constrained: bool = True,
) -> None:
    """Write `NAME.txt`: the requirements of EarVoice's extras, and the ``wanted`` packages."""
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet"]
    command += ["--generate-hashes", "--python-version", PYTHON, "--python-platform", PLATFORM]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--output-file", str(LOCKED / f"{name}.txt")]
    if constrained:
        command += ["--constraint", str(ROOT / "constraints.txt")]
    for variable, option in (
        ("PIP_FIND_LINKS", "--find-links"),
        ("PIP_EXTRA_INDEX_URL", "--extra-index-url"),
    ):
        if links and os.environ.get(variable):
            command += [option, os.environ[variable]]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
        file.write("\n".join(wanted))
        file.flush()
        if extras:
            command.append(str(ROOT / "pyproject.toml"))
            for extra in extras:
                command += ["--extra", extra]
            command += ["--constraint", file.name]
        else:
            command.append(file.name)
        subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
