"""Apache Kafka's jars as an oracle: its message specs, and single-file Java programs."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bench.processes import kafka_libs
from tests.support.java import program

# Where the jars are, once require_jars() has let a test go on.
LIBS = kafka_libs() or Path()

Spec = dict[str, Any]


def require_jars() -> None:
    """Skip the test where there are no jars, or no Java to run them."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")


@functools.cache
def specs() -> dict[str, Spec]:
    """Return every message spec of the jars by its name."""
    found: dict[str, Spec] = {}
    for jar in sorted(LIBS.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for path in archive.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", path):
                    found[Path(path).stem] = parse_spec(archive.read(path).decode())
    return found


def parse_spec(text: str) -> Spec:
    """Parse a spec: JSON with comments as in Java."""
    string_or_comment = r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*(?s:.*?)\*/'
    spec: Spec = json.loads(re.sub(string_or_comment, lambda found: found[1] or "", text))
    return spec


def run_java(name: str, *arguments: str) -> list[list[str]]:
    """Run a Java source file beside this one; return its output's lines, split at tabs."""
    command = program(Path(__file__).with_name(name), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return [line.split("\t") for line in done.stdout.splitlines()]
