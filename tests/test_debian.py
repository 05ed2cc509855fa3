"""The Debian package is built, installed, used and removed in a copy of this machine's files.

The copy is an overlay: dpkg writes its files, runs the scripts of the package and registers it
there, and this machine keeps none of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from bench.processes import ROOT, free_port, wait_until_answering
from odradek.cli.starting_files import STARTING
from tests.distribution import RECORD, plant_foreign_modules

DEBIAN = ROOT / "packaging" / "debian"
PACKAGE = yaml.safe_load((DEBIAN / "nfpm.yaml").read_text())
BUILD = (DEBIAN / "build.sh").read_text()
NFPM = ROOT / ".nfpm" / "nfpm"
MINUTE_S = 60
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def test_each_file_of_the_package_is_there_or_built() -> None:
    for script in PACKAGE["scripts"].values():
        path = ROOT / script
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", path], check=True)
    for one in PACKAGE["contents"]:
        folder, _, name = one["src"].rpartition("/")
        assert one.get("type") == "symlink" or (folder == "build/debian" and name in BUILD)
    assert {"settings", "docs"} - set(STARTING) == {"docs"}


def test_the_service_runs_the_command_of_the_package() -> None:
    command = next(one for one in PACKAGE["contents"] if one.get("type") == "symlink")["dst"]
    unit = (ROOT / "packaging" / "systemd" / "odradek.service").read_text()
    assert "/usr/local/bin/odradek serve" in unit
    assert f"s|/usr/local/bin/odradek|{command}|" in BUILD


@pytest.fixture(scope="module")
def package() -> Path:
    """The package, built as `make deb` does."""
    if not NFPM.exists() or shutil.which("dpkg-deb") is None:
        pytest.skip("no nfpm or dpkg: `make deb` on Debian fetches and builds it, which needs Go")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([DEBIAN / "build.sh", sys.executable, NFPM], cwd=ROOT, check=True)
    (built,) = (ROOT / "dist").glob("*.deb")
    return built


@contextmanager
def copy_of_this_machine(folder: Path) -> Iterator[Path]:
    """Mount a copy of all files, whose changes are below a folder."""
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for one in (root, upper, work):
        one.mkdir(parents=True)
    options = f"lowerdir=/,upperdir={upper},workdir={work}"
    mounts = [
        (root, ["-t", "overlay", "overlay", "-o", options]),
        (root / "proc", ["--bind", "/proc"]),
        (root / "dev", ["--bind", "/dev"]),
    ]
    with ExitStack() as stack:
        for place, words in mounts:
            if subprocess.run(["mount", *words, place], capture_output=True).returncode:
                pytest.skip("overlays cannot be mounted here")
            stack.callback(subprocess.run, ["umount", "--lazy", place], check=True)
        yield root


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_the_package_is_installed_used_and_removed(package: Path, tmp_path: Path) -> None:
    with copy_of_this_machine(tmp_path) as root:

        def run(*words: str, given: str = "") -> str:
            done = subprocess.run(
                ["chroot", root, *words], input=given, capture_output=True, text=True,
                timeout=5 * MINUTE_S, env=PATH,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        plant_foreign_modules(root / "elsewhere")
        shutil.copy(package, root / "odradek.deb")
        assert "/etc/odradek/server.properties" in run("dpkg", "-i", "/odradek.deb")
        code = root / "usr" / "lib" / "odradek"
        assert str(ROOT) not in "".join(
            path.read_text() for path in [code / "pyvenv.cfg", *(code / "bin").glob("odradek")]
        )
        for folder in ("var/lib/odradek", "var/cache/odradek"):
            (root / folder).mkdir()
            shutil.chown(root / folder, "nobody", "nogroup")
        unit = (root / "lib" / "systemd" / "system" / "odradek.service").read_text()
        (start,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
        port = free_port()
        settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", "metrics.listener="]
        options = [word for one in settings for word in ("--set", one)]
        serve = [*NOBODY, *start.removeprefix("ExecStart=").split(), *options]
        log = tmp_path / "broker.log"
        with log.open("wb") as output:
            broker = subprocess.Popen(
                ["chroot", root, *serve], stdout=output, stderr=output,
                env={**PATH, "NUMBA_CACHE_DIR": "/var/cache/odradek"},
            )  # fmt: skip
        try:
            wait_until_answering(port, broker, log)
            where = ["--bootstrap-servers", f"127.0.0.1:{port}"]
            odradek = ["env", "-C", "/elsewhere", "odradek"]
            run(*odradek, "topics", "create", "prices", "--compact", *where)
            run(*odradek, "produce", "prices", "--key", "apple", *where, given=RECORD)
            assert "3 euros" in run(*odradek, "consume", "prices", "--to", "end", *where)
        finally:
            broker.terminate()
            broker.wait(MINUTE_S)
        assert broker.returncode == 0, log.read_text()
        run("dpkg", "-r", "odradek")
        assert not code.exists() and (root / "etc/odradek/server.properties").exists()
        assert "left the records in /var/lib/odradek" in run("dpkg", "-P", "odradek")
        assert not (root / "etc/odradek").exists() and not (root / "var/cache/odradek").exists()
        assert (root / "var/lib/odradek/prices-0").exists()
