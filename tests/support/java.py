"""The Java programs of the tests, compiled together and once.

A program that Java compiles for each run takes eight times as much processor time to start.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

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
    with asking(source) as answers:
        return answers(lines)


@contextmanager
def asking(source: Path) -> Iterator[Callable[[Sequence[Any]], list[Any]]]:
    """Start a program that answers each line of JSON by a line of JSON; yield what asks it."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            program(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
        )
        assert process.stdin is not None and process.stdout is not None

        def answers(lines: Sequence[Any]) -> list[Any]:
            assert process.stdin is not None and process.stdout is not None
            sending = Thread(target=_send, args=(process.stdin, lines))
            sending.start()
            found = [line for _, line in zip(lines, process.stdout, strict=False)]
            sending.join()
            if len(found) < len(lines):
                errors.seek(0)
                raise RuntimeError(errors.read().decode(errors="replace"))
            return [json.loads(line) for line in found]

        try:
            yield answers
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait(60)
        assert process.returncode == 0, f"{source.name} ended with {process.returncode}"


def _send(stream: TextIO, lines: Sequence[Any]) -> None:
    """Send lines while the answers are read, so that neither pipe gets full for good."""
    with suppress(BrokenPipeError):
        for line in lines:
            print(json.dumps(line), file=stream)
        stream.flush()


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
