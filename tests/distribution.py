"""Builds the distributions, and runs an installed one: `python -m tests.distribution dist`.

The command installs the wheel in a folder, with the packages of requirements.lock, into an
environment of its own; then it serves and produces from a folder in which other modules have the
names of our packages.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from bench.processes import ROOT, free_port
from tests.packages import PACKAGES

RECORD = "3 euros\n"
_START_S, _COMMAND_S = 60, 60


def plant_foreign_modules(folder: Path) -> None:
    """Write a module that cannot be imported for each of our packages, as a user may have one."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        (folder / f"{package}.py").write_text('raise ImportError("a module of the user")\n')


def serve_and_produce(python: Path, folder: Path) -> str:
    """Serve from a folder, write a record and read it; return the commands' output.

    Raises CalledProcessError or TimeoutExpired when a command fails.
    """
    bootstrap, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    odradek = [python, "-m", "odradek.cli.main"]
    settings = [f"listeners=PLAINTEXT://{bootstrap}", f"metrics.listener={http}", "log.dirs=data"]
    options = [word for one in settings for word in ("--set", one)]
    with subprocess.Popen(
        [*odradek, "serve", *options], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            first = broker.stdout.readline()
            where = ["--bootstrap-servers", bootstrap]
            run([*odradek, "topics", "create", "prices", "--compact", *where], folder)
            run([*odradek, "produce", "prices", "--key", "apple", *where], folder, given=RECORD)
            read = run([*odradek, "consume", "prices", "--to", "end", *where], folder)
        finally:
            broker.terminate()
            broker.wait(_START_S)
    return first + read


def run(words: Sequence[str | Path], folder: Path, given: str = "") -> str:
    """Run a command in a folder; return its output."""
    done = subprocess.run(
        words, cwd=folder, input=given, text=True, check=True, timeout=_COMMAND_S,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    """Install the wheel of a folder into an empty environment, and use it."""
    (wheel,) = Path(sys.argv[1]).resolve().glob("*.whl")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "-q"]
        lock = ROOT / "requirements.lock"
        subprocess.run([*install, "--require-hashes", "-r", lock], check=True)
        subprocess.run([*install, "--no-deps", wheel], check=True)
        plant_foreign_modules(folder / "elsewhere")
        print(serve_and_produce(python, folder / "elsewhere"), end="")


if __name__ == "__main__":
    main()
