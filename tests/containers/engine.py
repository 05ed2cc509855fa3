"""Podman in the place of Docker, with files of its own below `.containers`.

`docker compose` is Docker's own Compose, which talks to podman's service as to Docker's. It runs
docker-compose.yml as it is, with images whose names the tests give: images are built from the
Dockerfile, and for those of others there are stand-ins of Debian's packages (`images/`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.processes import ROOT, end
from tests.support.waiting import wait_until

FOLDER = ROOT / ".containers"
COMPOSE = FOLDER / "docker-compose"
PYTHON, JAVA = "localhost/odradek-tests/python", "localhost/odradek-tests/java"
# Programs, and the packages of Debian that have them.
_PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}
_PROJECT = "odradek-tests"
_PROCESS_MAX = 8_192


def missing_packages() -> list[str]:
    """Return the packages of Debian without which no container runs."""
    return [package for program, package in _PROGRAMS.items() if not shutil.which(program)]


def missing() -> str:
    """Return a sentence that says why no container runs here, "" when they do."""
    if os.geteuid() != 0:
        return "containers are started as root"
    if packages := missing_packages():
        return f"not installed: apt-get install {' '.join(packages)}"
    if not COMPOSE.exists():
        return "not prepared: make containers"
    return ""


class Engine:
    """Images, containers, and Compose."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of a run: settings and a socket."""
        self._folder = folder
        self._socket = folder / "podman.sock"
        self._override = folder / "images.yml"
        settings = folder / "containers.conf"
        # By default podman asks for more files and processes than a root without all rights may.
        limits = f'"nofile={_PROCESS_MAX}:{_PROCESS_MAX}", "nproc={_PROCESS_MAX}:{_PROCESS_MAX}"'
        settings.write_text(
            f"[containers]\ndefault_ulimits = [{limits}]\n"
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}"\n'
        )
        self._environment = {
            **os.environ,
            "CONTAINERS_CONF": str(settings),
            "DOCKER_HOST": f"unix://{self._socket}",
            "PATH": f"{folder}:{os.environ['PATH']}",
        }

    def podman(self, *words: str | Path, timeout_s: float = 1_800) -> str:
        """Run podman; return its output."""
        return self._run([*_podman(), *map(str, words)], {}, timeout_s)

    def build(self, name: str, context: Path, *options: str, base: str = PYTHON) -> None:
        """Build an image of a folder; its first stage begins with another image, the base."""
        self.podman(
            "build", "--network", "host", "--isolation", "chroot", "--format", "docker",
            "--from", base, "--tag", name, *options, context,
        )  # fmt: skip

    def sh(self, command: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command of the shell, in which `docker compose` may stand; return its output."""
        return self._run(["sh", "-ec", command], environment or {}, 600)

    @contextmanager
    def started(
        self, command: str, environment: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command of the shell whose input stays open."""
        process = subprocess.Popen(
            ["sh", "-ec", f"exec env {command}"],
            env={**self._environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()

    def name_images(self, images: Mapping[str, str]) -> None:
        """Name the images of the services of docker-compose.yml."""
        lines = [
            f"  {service}: {{image: {image}, build: !reset null}}\n"
            for service, image in images.items()
        ]
        self._override.write_text("services:\n" + "".join(lines))
        files = f"-f {ROOT}/docker-compose.yml -f {self._override}"
        script = self._folder / "docker"
        script.write_text(f'#!/bin/sh\nshift\nexec {COMPOSE} -p {_PROJECT} {files} "$@"\n')
        script.chmod(0o755)

    def _run(self, words: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"[-8_000:]
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the service that Compose talks to, and the checks of containers' health."""
        words = [*_podman(), "system", "service", "--time=0", f"unix://{self._socket}"]
        with (self._folder / "service.log").open("wb") as log:
            service = subprocess.Popen(words, env=self._environment, stdout=log, stderr=log)
        is_over = threading.Event()
        checks = threading.Thread(target=self._check_health, args=(is_over,))
        checks.start()
        try:
            wait_until(self._socket.exists, "podman's service listens")
            yield
        finally:
            is_over.set()
            checks.join()
            service.terminate()
            end(service)

    def _check_health(self, is_over: threading.Event) -> None:
        """Check each second. Podman leaves that to systemd, which need not run here."""
        while not is_over.wait(1):
            for container in json.loads(self.podman("ps", "--format", "json")):
                words = [*_podman(), "healthcheck", "run", container["Id"]]
                subprocess.run(words, env=self._environment, capture_output=True, check=False)


@contextmanager
def engine() -> Iterator[Engine]:
    """Yield an engine that serves; nothing of its containers stays."""
    with TemporaryDirectory(prefix="odradek-containers-") as folder:
        found = Engine(Path(folder))
        with found.serving():
            try:
                yield found
            finally:
                found.podman("rm", "--all", "--force", "--time", "1")


def _podman() -> list[str]:
    return ["podman", "--root", str(FOLDER / "storage"), "--runroot", str(FOLDER / "run")]
