"""Build `.venv/` with everything the project needs; safe to run again.

Uses the standard library only. `python3 tools/setup_environment.py [--system-packages NAME ...]`
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".earvoice-setup"
INPUTS = ("pyproject.toml", "constraints.txt", "hatch_build.py", "tools/setup_environment.py")

CPU_TORCH = "torch==2.13.0"
CUDA_TORCH = "torch>=2.13"
TORCHAUDIO = "torchaudio==2.11.0"
CUDA_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so", "libcudart.so")


class SetupError(Exception):
    """The set-up cannot go on; the message says what a person can do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system-packages", nargs="+", default=[], metavar="NAME")
    arguments = parser.parse_args()
    try:
        install_system_packages(arguments.system_packages)
        build_environment()
    except (SetupError, subprocess.CalledProcessError) as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


def build_environment() -> None:
    """Create the virtual environment unless it is up to date."""
    if sys.version_info < (3, 11):  # noqa: UP036 - told here, not by a traceback
        raise SetupError(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    # A generated module that is missing would fail far from here, so gen/ counts as well.
    if _stamp_is_current() and (ROOT / "gen" / "earvoice").is_dir():
        return
    if not PYTHON.exists():
        _create_venv()
    say("installing torch")
    pip("install", "--upgrade", "pip")
    pip("install", CUDA_TORCH if has_cuda_device() else CPU_TORCH)
    pip("install", "--no-deps", TORCHAUDIO)
    mend_torchaudio()
    say("installing EarVoice and its tools")
    pip("install", "--constraint", str(ROOT / "constraints.txt"), "--editable", f"{ROOT}[dev]")
    STAMP.write_text(_fingerprint(), encoding="utf8")
    say("ready: .venv/bin/earvoice")


def install_system_packages(names: list[str]) -> None:
    """Install missing Debian packages with apt-get if we are root; otherwise say what to do."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if shutil.which("apt-get") is None:
        raise SetupError(f"these programs are missing: {', '.join(missing)}")
    if os.geteuid() != 0:
        raise SetupError(f"system packages are missing; please run: sudo {' '.join(command)}")
    say(f"installing system packages: {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def has_cuda_device() -> bool:
    """Say whether this machine has an NVIDIA device that the driver sees."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True).returncode == 0


def mend_torchaudio() -> None:
    """Make torchaudio importable beside a CPU-only torch.

    torchaudio's package links its compiled parts against CUDA. Beside a torch without CUDA its
    import fails on libc10_cuda.so, although the Python parts that EarVoice uses (Kaldi
    filterbank, resampling) do not need the compiled ones. Only then are those moved out of the way.

    Raises:
        SetupError: the import fails for another reason.
    """
    failure = _import_failure("torchaudio")
    if failure is None:
        return
    has_cuda = _output("import torch; print(torch.version.cuda is not None)") == "True"
    if has_cuda or not any(library in failure for library in CUDA_LIBRARIES):
        raise SetupError(f"torchaudio cannot be imported: {failure}")
    library = Path(_output("import sysconfig; print(sysconfig.get_path('purelib'))"))
    library = library / "torchaudio" / "lib"
    aside = library / "unused-without-cuda"
    aside.mkdir(exist_ok=True)
    for compiled in library.glob("*.so"):
        compiled.replace(aside / compiled.name)
    say(f"torch has no CUDA: moved torchaudio's compiled parts to {aside.relative_to(ROOT)}")
    failure = _import_failure("torchaudio")
    if failure is not None:
        raise SetupError(f"torchaudio cannot be imported: {failure}")


def pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


def _create_venv() -> None:
    if _import_failure("ensurepip", sys.executable) is not None:
        install_system_packages([f"python3.{sys.version_info.minor}-venv"])
    say("creating .venv")
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    if shutil.which(query[0]) is None:
        return shutil.which(package) is not None
    result = subprocess.run(query, check=False, capture_output=True, text=True)
    return result.stdout == "installed"


def _import_failure(module: str, python: str = str(PYTHON)) -> str | None:
    """Return what importing a module prints when it fails."""
    result = subprocess.run(
        [python, "-c", f"import {module}"], check=False, capture_output=True, text=True
    )
    return None if result.returncode == 0 else result.stderr.strip()


def _output(code: str) -> str:
    result = subprocess.run([str(PYTHON), "-c", code], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    for proto in sorted((ROOT / "protos").rglob("*.proto")):
        digest.update(proto.read_bytes())
    return digest.hexdigest()


def _stamp_is_current() -> bool:
    return STAMP.exists() and STAMP.read_text(encoding="utf8") == _fingerprint()


if __name__ == "__main__":
    sys.exit(main())
