"""Runs the commands of a page against a fresh broker, in the folder that has its data.

    python -m tests.docs.running docs/start.md     prints what they print, to be put into the page
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processes import QUICK_START, ROOT, free_port, java, kafka_libs
from tests.compat.tools import CLASSES
from tests.docs.blocks import Command, blocks
from tests.page.conftest import Service

_TOOLS = {
    "kafka-topics.sh": CLASSES["topics"],
    "kafka-configs.sh": CLASSES["configs"],
    "kafka-consumer-groups.sh": CLASSES["groups"],
    "kafka-acls.sh": CLASSES["acls"],
    "kafka-get-offsets.sh": CLASSES["offsets"],
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
# Where a broker listens that nobody has told anything else.
_KAFKA = re.compile(r"\b(?:127\.0\.0\.1|localhost):9092\b")
# Where one listens that a page starts itself; it writes its number into a file.
_OTHER = re.compile(r"\b(127\.0\.0\.1|localhost):9093\b")
_NUMBERS = "*.pid"
_HTTP = re.compile(r"\b(?:127\.0\.0\.1|localhost):9308\b")
# What stands behind a figure changes with it.
_UNITS = {"B", "kB", "MB", "GB", "ns", "us", "µs", "ms", "s", "min", "h", "d", "in", "ago"}
_UNITS |= {f"{unit}/s" for unit in ("B", "kB", "MB", "GB")}
# What the broker of a page is told: `<!-- broker: super.users=User:ANONYMOUS -->`.
_SETTING = re.compile(r"(?m)^<!-- broker: ([\w.]+)=(.*) -->$")
_ABSENT = re.compile(r"(\S+): command not found")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended, all that it printed, and the programs that it did not find."""

    command: Command
    status: int
    printed: str

    @property
    def absent(self) -> str | None:
        """The program that is not on this machine, if that is why it failed."""
        found = _ABSENT.search(self.printed)
        return found[1] if found and self.status == 127 else None

    def missing(self) -> list[str]:
        """Return the lines that the page shows with a word that was not printed."""
        printed = set(self.printed.split())
        return [one for one in self.command.shown if not words(one) <= printed]


def words(line: str) -> set[str]:
    """Return the words of a line that are the same whenever the command is run."""
    return {
        word
        for word in line.split()
        if not re.search(r"\d|…", word) and word.rstrip(",.:;)") not in _UNITS
    }


def commands(page: Path) -> list[Command]:
    """Return the commands of a page that are to be run."""
    return [one for block in blocks(page) if block.is_run for one in block.commands()]


def run_page(page: Path, folder: Path, *, timeout_s: float) -> Iterator[Ran]:
    """Run a page's commands one after the other; a fresh broker has its data in folder/data."""
    programs, other_port = folder / ".programs", free_port()
    _provide(programs)
    broker = Service(folder, dict(_SETTING.findall(page.read_text())))
    broker.start()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap,
        "ODRADEK_URL": broker.http,
        "ODRADEK_PROFILES": str(folder / "profiles.ini"),
    }
    try:
        for command in commands(page):
            text = _KAFKA.sub(broker.bootstrap, command.text)
            text = _OTHER.sub(rf"\1:{other_port}", text)
            text = _HTTP.sub(broker.http.removeprefix("http://"), text)
            ended = subprocess.run(
                ["bash", "-c", text],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
            )
            yield Ran(command, ended.returncode, ended.stdout)
    finally:
        broker.stop()
        _end_what_was_started(folder)


def _end_what_was_started(folder: Path) -> None:
    """End what a page has started and, having failed, not ended."""
    for file in folder.glob(_NUMBERS):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


def _provide(folder: Path) -> None:
    """Write a script for each program that a user has on PATH, and a developer has not."""
    folder.mkdir(parents=True)
    here = shlex.quote(sys.executable)
    scripts = {"odradek": f"{here} -m odradek.cli.main", "python": here}
    if kafka_libs() is not None:
        start = shlex.join(java(["-Xmx256m", *QUICK_START]))
        scripts |= {name: f"{start} {tool}" for name, tool in _TOOLS.items()}
    for name, text in scripts.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {text} "$@"\n')
        script.chmod(0o755)


def main() -> int:
    """Print the commands of a page, and what each has printed."""
    status = 0
    with tempfile.TemporaryDirectory(prefix="odradek-docs-") as folder:
        for ran in run_page(Path(sys.argv[1]), Path(folder), timeout_s=600):
            print(f"$ {ran.command.text}\n{ran.printed}", end="", flush=True)
            if ran.status:
                print(f"exit status {ran.status}", flush=True)
                status = 1
            for line in ran.missing():
                print(f"the page says: {line}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
