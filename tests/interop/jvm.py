"""Kafka's programs beside the broker, as processes that read a file of settings.

`make interop` puts their jars into .interop.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.processes import ROOT
from tests.interop.programs import BUILDS

_LIBS = BUILDS / "kafka" / "libs"
_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Droot.level=WARN")


def skip_without_java() -> None:
    """Skip a test where there is no Java, and fail it where only the jars are missing."""
    if shutil.which("java") is None:
        pytest.skip("not installed: java")
    assert _LIBS.exists(), "Kafka's programs are not there: run `make interop`"


def run_with_settings(
    main: str, settings: Mapping[str, str], directory: Path
) -> subprocess.Popen[bytes]:
    """Start a program by its class in a directory that keeps its settings and its log."""
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "settings.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log4j = f"-Dlog4j2.configurationFile={ROOT / 'bench' / 'log4j2.properties'}"
    with (directory / "program.log").open("ab") as output:
        return subprocess.Popen(
            ["java", *_FLAGS, log4j, "-cp", f"{_LIBS}/*", main, str(properties)],
            stdout=output,
            stderr=output,
        )


def log_text(directory: Path) -> str:
    """Return the end of what a program in this directory has written."""
    return (directory / "program.log").read_text(errors="replace")[-4000:]
