"""Build hook: makes the Python modules of the protos, so that every install has them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtoBuildHook(BuildHookInterface):
    """Runs protoc over ``protos/`` into ``gen/`` before anything is packaged."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Generate messages, services and their type stubs.

        Raises:
            RuntimeError: protoc refused a file; its own message is on standard error.
        """
        generate(Path(self.root))
        build_data["artifacts"] += ["gen/**/*.py", "gen/**/*.pyi"]


def generate(root: Path) -> None:
    """Generate ``root/gen`` from ``root/protos``."""
    from grpc_tools import protoc  # noqa: PLC0415 - only the build environment has it
    from importlib.resources import files  # noqa: PLC0415

    protos, target = root / "protos", root / "gen"
    ours = (protos / "earvoice").rglob("*.proto")
    sources = sorted(str(path.relative_to(protos)) for path in ours)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    scripts = Path(sys.executable).parent
    plugins = [
        f"--plugin={name}={path}"
        for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
        if (path := _plugin(name, scripts)) is not None
    ]
    arguments = [
        "protoc",
        f"-I{protos}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        *plugins,
        f"--mypy_out={target}",
        f"--mypy_grpc_out={target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc refused one of {', '.join(sources)}")
    package = target / "earvoice" / "api"
    for folder in (package, package / "v1"):
        (folder / "__init__.py").write_text('"""Generated from protos/; see hatch_build.py."""\n')


def _plugin(name: str, scripts: Path) -> str | None:
    """Find a protoc plugin beside the running interpreter, else on the PATH."""
    return shutil.which(name, path=str(scripts)) or shutil.which(name)
