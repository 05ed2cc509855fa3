"""A schema registry of the tests' own: Apicurio's, which keeps its schemas in topics of Odradek.

`make registry` fetches it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import QUICK_START, ROOT, end, free_port
from tests.support.waiting import wait_until

FOLDER = ROOT / ".registry"
_PATIENCE_S = 180.0
_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class RunningRegistry:
    """A registry at a URL."""

    url: str

    def add(
        self,
        subject: str,
        schema: str | Mapping[str, Any],
        kind: str = "AVRO",
        references: Sequence[tuple[str, str]] = (),
    ) -> int:
        """Register a schema, and return its id; references are names and subjects."""
        document = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema),
            "schemaType": kind,
            "references": [
                {"name": name, "subject": other, "version": 1} for name, other in references
            ],
        }
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        number = self._ask(path, document)["id"]
        assert isinstance(number, int)
        return number

    def _ask(self, path: str, document: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(document).encode(), {"Content-Type": _TYPE}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.read().decode()}") from error


def require_registry() -> Path:
    """Return the registry's jar; skip the test without it, or without Java."""
    jars = sorted(FOLDER.glob("apicurio-registry-app-*-runner.jar"))
    if not jars or shutil.which("java") is None:
        pytest.skip("no schema registry here: make registry needs Java and Maven")
    return jars[-1]


@contextmanager
def running_registry(
    folder: Path, bootstrap: str, port: int | None = None
) -> Iterator[RunningRegistry]:
    """Run a registry with its log in a folder, and its schemas in topics of a broker."""
    jar, port = require_registry(), port or free_port()
    flags = {
        "quarkus.http.port": port,
        "quarkus.http.host": "127.0.0.1",
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
    }
    own = [f"-D{name}={value}" for name, value in flags.items()]
    command = ["java", "-Xmx256m", *QUICK_START, *own, "-jar", str(jar)]
    log = folder / "registry.log"
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
            except OSError:
                return False
            return True

        wait_until(answers, "the registry answers", _PATIENCE_S, shown=log.read_text)
        yield RunningRegistry(url)
    finally:
        process.terminate()
        end(process)
