"""Make a stand-in for the images' base, `python:3.11-slim`, from this machine's packages.

For machines that can reach Debian's and Python's packages, but no image registry. It copies this
machine's certificates, pip configuration and wheels into the image: only for trying the images out.
Uses the standard library only. `python3 tools/make_base_image.py [IMAGE]`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGE = "docker.io/library/python:3.11-slim"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
# A release whose python3 has the images' version.
RELEASE = "bookworm"
HOST_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
WHEELS = Path("/opt/wheels")


def main() -> int:
    image = sys.argv[1] if len(sys.argv) > 1 else IMAGE
    if subprocess.run(["podman", "image", "exists", image], check=False).returncode == 0:
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            build(image, Path(folder))
    except subprocess.CalledProcessError as error:
        print(f"{image} could not be made: {error}", file=sys.stderr)
        return 1
    return 0


def build(image: str, folder: Path) -> None:
    """Make a root file system from Debian's packages, and add what pip needs on this machine."""
    root = folder / "root.tar"
    run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
    run("podman", "import", "--quiet", str(root), f"{image}-bare")
    lines = [f"FROM {image}-bare", "RUN ln -s /usr/bin/python3 /usr/local/bin/python"]
    for path in map(Path, HOST_FILES):
        if path.exists():
            shutil.copy(path, folder / path.name)
            lines.append(f"COPY {path.name} {path}")
    if WHEELS.is_dir():
        shutil.copytree(WHEELS, folder / "wheels")
        lines += [f"COPY wheels {WHEELS}", f"ENV PIP_FIND_LINKS={WHEELS}"]
    (folder / "Containerfile").write_text("\n".join(lines) + "\n", encoding="utf8")
    root.unlink()
    run("podman", "build", "--quiet", "--tag", image, str(folder))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
