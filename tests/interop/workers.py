"""Kafka Connect's distributed workers as processes, and the HTTP that administers them.

A worker keeps its connectors, their offsets and their state in three compacted topics, and shares
the work with the others of its group by a protocol of its own inside JoinGroup.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import end, free_port
from tests.interop.jvm import log_text, run_with_settings
from tests.support.waiting import wait_until

CONFIGS_TOPIC = "connect-configs"
REQUEST_TIMEOUT_S = 30.0
TIMEOUT_S = 180.0

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_SETTINGS = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": CONFIGS_TOPIC,
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    # Only what is not in the active segment can be compacted.
    "config.storage.segment.ms": "1000",
    "offset.storage.segment.ms": "1000",
    "status.storage.segment.ms": "1000",
    "offset.flush.interval.ms": "500",
    # The least that brokers allow, and no long wait for a worker that might come back.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "1000",
}


class Refused(Exception):
    """A worker answered with an error, or could not be reached."""


@dataclass
class Worker:
    """A worker, which may be stopped, killed and started again under its name."""

    directory: Path
    bootstrap: str
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What the workers call it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it answers some seconds later."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "listeners": f"http://{self.name}",
            **_SETTINGS,
        }
        self.process = run_with_settings(_MAIN, settings, self.directory)

    def stop(self) -> None:
        """Have it commit what it has done, leave its group, and end."""
        if self.process is not None:
            self.process.terminate()
            end(self.process)
            self.process = None

    def kill(self) -> None:
        """End it at once: it commits nothing, and stays a member until its session ends."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return what it answers to a request, None when that is nothing."""
        request = urllib.request.Request(
            f"http://{self.name}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Refused(f"{error.code} {error.read().decode()}") from None
        except OSError as error:
            raise Refused(str(error)) from None
        return json.loads(text) if text else None

    def insist(self, method: str, path: str, body: object = None) -> Any:
        """Ask until it does not refuse, as it does while its group rebalances."""
        answers = []

        def answered() -> bool:
            answers.append(self.ask(method, path, body))
            return True

        self.wait_until(answered)
        return answers[0]

    def places(self, connector: str) -> tuple[str, ...]:
        """Return the workers that run a connector and its tasks, "" for what is not running."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return tuple(
            part["worker_id"] if part["state"] == "RUNNING" else ""
            for part in (status["connector"], *status["tasks"])
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until what it and the others have done makes a condition true."""
        last = ""

        def holds() -> bool:
            nonlocal last
            try:
                return condition()
            except Refused as error:
                last = str(error)
                return False

        wait_until(
            holds,
            "the connectors are as wanted",
            TIMEOUT_S,
            shown=lambda: f"{last}\n{log_text(self.directory)}",
        )

    def put(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create a connector, or give it other settings."""
        self.insist("PUT", f"/connectors/{connector}/config", settings)


@contextlib.contextmanager
def ended(*workers: Worker) -> Iterator[None]:
    """End the workers when the block ends, however it does."""
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
