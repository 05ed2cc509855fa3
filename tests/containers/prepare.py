"""Prepares what the tests of the images need, in `.containers`.

Docker's Compose is built by Go. The images of the tests begin with a Debian of its own packages in
the place of `python:3.11-slim`, since an image of others need not be to be had. The machine's
certificates and settings of apt and pip go along: it may reach the packages by a proxy.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.containers.engine import COMPOSE, FOLDER, PYTHON, Engine, missing_packages
from tests.containers.standins import CONNECTORS

_COMPOSE = "github.com/docker/compose/v2"
_COMPOSE_VERSION = "v2.39.4"
_CONNECTOR = "org.apache.kafka:connect-file:4.3.1"
_RELEASE = "bookworm"  # has Python 3.11, as the image
_PACKAGES = "python3,python3-venv,ca-certificates"
_SETTINGS = (
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/certs/java/cacerts",
    "etc/pip.conf",
    "etc/apt/apt.conf.d",
)
# Programs of the other architecture run by QEMU where the kernel has this entry.
_EMULATION = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


def architectures() -> list[str]:
    """Return the architectures whose programs run here."""
    return ["amd64", "arm64"] if _EMULATION.exists() else ["amd64"]


def image(architecture: str) -> str:
    """Return the name of the Debian of an architecture."""
    return PYTHON if architecture == "amd64" else f"{PYTHON}-{architecture}"


def build_compose() -> None:
    """Build Docker's Compose; `go install` refuses it, as its module excludes some versions."""
    folder = FOLDER / "compose"
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text("module tests\n")
    (folder / "tools.go").write_text(
        f'//go:build tools\npackage tools\nimport _ "{_COMPOSE}/cmd"\n'
    )
    for words in (
        ("get", f"{_COMPOSE}/cmd@{_COMPOSE_VERSION}"),
        ("mod", "tidy"),
        ("build", "-o", str(COMPOSE), f"{_COMPOSE}/cmd"),
    ):
        subprocess.run(["go", *words], cwd=folder, check=True)


def fetch_connectors() -> None:
    """Fetch the jar of Kafka's connectors of files."""
    words = [f"-Dartifact={_CONNECTOR}", f"-DoutputDirectory={CONNECTORS}"]
    subprocess.run(["mvn", "-q", "-B", "dependency:copy", *words], check=True)


def build_debian(architecture: str) -> None:
    """Make the image of a Debian."""
    root = FOLDER / f"debian-{architecture}"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(
        [
            "debootstrap", f"--arch={architecture}", "--variant=minbase",
            f"--include={_PACKAGES}", _RELEASE, str(root),
        ],
        check=True,
    )  # fmt: skip
    for name in _SETTINGS:
        source = Path("/") / name
        if source.is_dir():
            shutil.copytree(source, root / name, dirs_exist_ok=True)
        elif source.exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / name)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    archive = root.with_suffix(".tar")
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    shutil.rmtree(root)
    with TemporaryDirectory() as folder:
        Engine(Path(folder)).podman("import", "--arch", architecture, archive, image(architecture))
    archive.unlink()


def main() -> None:
    """Prepare what is not there."""
    if packages := missing_packages():
        sys.exit(f"apt-get install {' '.join(packages)}")
    FOLDER.mkdir(exist_ok=True)
    if not COMPOSE.exists():
        build_compose()
    if not CONNECTORS.exists() and shutil.which("mvn"):
        fetch_connectors()
    for architecture in architectures():
        made = FOLDER / f".made-{architecture}"
        if not made.exists():
            build_debian(architecture)
            made.touch()


if __name__ == "__main__":
    main()
