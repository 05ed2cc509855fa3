"""The Java programs of the tests, compiled together and once.

A program that Java compiles for each run takes eight times as much processor time to start.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.processes import QUICK_START, ROOT, java, kafka_libs

_TESTS = Path(__file__).parent.parent
_COMPILED = ROOT / ".kafka" / "programs"
# Folders of programs that need Kafka's jars alone.
_FOLDERS = ("broker", "cleaner", "compat", "compat/members", "config", "logins", "protocol")


def program(source: Path, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    """Return the command of a program beside the tests; skip the test without Java or the jars."""
    libs = kafka_libs()
    if libs is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    if shutil.which("javac") is None:
        pytest.skip("no javac on the PATH")
    start = java(["-Xmx256m", *QUICK_START, *flags])
    # The archive of Kafka's classes wants its own class path first; the last one counts.
    return [*start, "-cp", f"{libs}/*:{compiled(libs)}", source.stem, *arguments]


def ask(source: Path, lines: Sequence[Any]) -> list[Any]:
    """Let a program answer lines of JSON with lines of JSON; skip the test as program() does."""
    done = subprocess.run(
        program(source),
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=240,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def compiled(libs: Path) -> Path:
    """Return the folder of the classes of all programs."""
    sources = [one for folder in _FOLDERS for one in sorted((_TESTS / folder).glob("*.java"))]
    contents = b"\0".join(source.read_bytes() for source in sources)
    classes = _COMPILED / hashlib.sha256(contents + str(libs).encode()).hexdigest()[:16]
    if not classes.exists():
        _COMPILED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_COMPILED) as folder:
            made = Path(folder) / "classes"
            flags = [f"-J{flag}" for flag in QUICK_START]
            names = map(str, sources)
            command = ["javac", *flags, "-nowarn", "-d", str(made), "-cp", f"{libs}/*", *names]
            subprocess.run(command, check=True, timeout=240)
            try:
                made.rename(classes)
            except OSError:  # another worker was faster
                assert classes.exists()
    return classes
