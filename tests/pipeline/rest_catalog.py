"""Iceberg's own REST catalog as a process on loopback. `make interop` puts it into .interop."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ
from pathlib import Path

import pyspark
import pytest

from tests.interop.programs import BUILDS, SOURCES

_LIBS = BUILDS / "iceberg" / "libs"


@contextmanager
def running_rest_catalog(folder: Path) -> Iterator[str]:
    """Run a REST catalog whose database and tables are in a folder, and yield its URI."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("not installed: java and mvn")
    assert _LIBS.exists(), "the REST catalog is not there: run `make interop`"
    home = Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    jars = [f"{_LIBS}/*", *map(str, (home / "jars").glob("hadoop-client-*.jar"))]
    flags = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars))
    where = (f"jdbc:sqlite:{folder}/rest.db", f"file:{folder}/warehouse")
    with (folder / "rest.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", *flags, str(SOURCES / "iceberg" / "RestCatalog.java"), *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        uri = process.stdout.readline().strip()
        assert uri, (folder / "rest.log").read_text()
        yield uri
    finally:
        process.communicate()  # it ends with its input
