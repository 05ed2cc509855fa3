"""The brokers of a siege as processes, one of them as several workers of one machine."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import ROOT, OdradekProcess, free_port, wait_until_answering
from tests.broker.workers import pids_of_workers
from tests.siege.disks import Disk
from tests.siege.proxies import Way, Ways
from tests.siege.shifted import write_offset

LEASE_S = 3.0  # broker.session.timeout.ms
_START_MAX_S = 60.0
_LAST_LINES = 30
# The node ids of further workers, so that they are nobody else's.
_WORKER_STEP = 10
# Why a start fails that succeeds later: the lease of the former life, a server that is away.
_PASSING = ("is in use by", "the catalog", "the bucket", "object store")
_PAGE_S = 5.0
_DISK_FAILURES = re.compile(r"^odradek_disk_failures_total\{.*\} (\S+)$", re.MULTILINE)
# Lines of the log that say why a process has ended.
_FOR_A_PERSON = "odradek: "
# Of tasks, of requests and of asyncio.
_BUGS = ("ended by a bug", "failed to serve request", "never retrieved")
SETTINGS = {
    "odradek.storage": "object",
    "odradek.object.store.timeout.ms": "5000",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:PLAINTEXT",
    "inter.broker.listener.name": "BETWEEN",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}


@dataclass(frozen=True)
class Door:
    """The ports of a process, and the ways to them from clients and from other brokers."""

    node_id: int
    port: int
    between_port: int
    clients: Way
    between: Way

    @classmethod
    def opened(cls, ways: Ways, node_id: int, port: int) -> Door:
        """Open the ways."""
        between_port = free_port()
        return cls(node_id, port, between_port, ways.to(port), ways.to(between_port))

    def settings(self) -> Mapping[str, str]:
        """Return the settings of the process alone."""
        return {
            "node.id": str(self.node_id),
            "listeners": _listeners(self.port, self.between_port),
            "advertised.listeners": _listeners(self.clients.port, self.between.port),
        }


def _listeners(clients: int, between: int) -> str:
    return f"CLIENTS://127.0.0.1:{clients},BETWEEN://127.0.0.1:{between}"


class Stuck(Exception):
    """A broker does not start, or does not stop; the message says which, and why."""


class Broker(OdradekProcess):
    """A broker of the siege, or workers of one machine, which share all but their doors."""

    def __init__(self, folder: Path, node_id: int, workers: int, ways: Ways, root: Path) -> None:
        self.node_id, self.workers = node_id, workers
        self.disk: Disk | None = None
        # Positions in the log file, the second one since it runs the present code.
        self._started_at, self._renewed_at = 0, -1
        self.clock_file = folder / f"clock-{node_id}"
        super().__init__(
            folder / f"broker-{node_id}",
            environment={"SIEGE_CLOCK": str(self.clock_file)},
            options=("--workers", str(workers)) if workers > 1 else (),
            is_apart=True,
            module="tests.siege.shifted",
            root=root,
        )
        write_offset(self.clock_file, 0)
        self.doors = [
            Door.opened(ways, node_id + at * _WORKER_STEP, free_port() if at else self.port)
            for at in range(workers)
        ]
        first, *others = self.doors
        self.settings = {**SETTINGS, "broker.rack": f"rack-{node_id}", **first.settings()}
        for number, door in enumerate(others, 2):
            for name, value in door.settings().items():
                self.settings[f"odradek.worker.{number}.{name}"] = value

    def reach(self, catalog: Way, catalog_url: str, bucket: Way, own: Mapping[str, str]) -> None:
        """Let it use a catalog and a bucket, by ways; `own` has the settings of the bucket."""
        self.catalog, self.bucket = catalog, bucket
        self.settings = {**self.settings, "odradek.catalog.url": catalog_url, **own}

    @property
    def node_ids(self) -> Sequence[int]:
        """The node ids of its workers."""
        return [one.node_id for one in self.doors]

    @property
    def all_ways(self) -> Mapping[str, Way]:
        """The ways of this broker, by the name of their other end."""
        found = {"catalog": self.catalog, "bucket": self.bucket}
        for one in self.doors:
            found[f"clients of {one.node_id}"] = one.clients
            found[f"brokers of {one.node_id}"] = one.between
        return found

    @property
    def is_up(self) -> bool:
        """Whether its process runs, or stands still."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End all its processes at once."""
        self._send(signal.SIGKILL)
        super().kill()

    def pause(self) -> None:
        """Let all its processes stand still."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        if self.is_up:
            self._send(signal.SIGCONT)

    def signal_worker(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to a worker, the last one of this node id that was started.

        Nothing happens while it is down: its supervisor starts another one.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids_of_workers(self.log_text())[node_id], number)

    def _send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def start(self) -> float:
        """Start it, and wait until all its workers answer. Raises RuntimeError if it ends."""
        self._started_at = self.log_file.stat().st_size if self.log_file.exists() else 0
        if self.root == ROOT and self._renewed_at < 0:
            self._renewed_at = self._started_at
        seconds = super().start()
        assert self.process is not None
        for door in self.doors[1:]:
            seconds += wait_until_answering(door.port, self.process, self.log_file)
        return seconds

    def stop(self) -> None:
        """Stop it as a service manager does. Raises Stuck, and kills it, when it does not stop."""
        try:
            super().stop()
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):  # its workers
                self._send(signal.SIGKILL)
            last = "\n".join(self.log_text().splitlines()[-_LAST_LINES:])
            raise Stuck(f"broker {self.node_id} does not stop:\n{last}") from None

    def start_again(self, well_since_s: Callable[[], float] = lambda: 0.0) -> None:
        """Start it as a service manager does: again until the lease of its former life ends.

        `well_since_s` returns when the catalog and the bucket were troubled last. Raises Stuck.
        """
        begun_s = time.monotonic()
        while True:
            try:
                self.start()
            except RuntimeError:
                reason = self.reason()
                end_s = max(begun_s, well_since_s()) + _START_MAX_S
                if time.monotonic() > end_s or not any(one in reason for one in _PASSING):
                    raise Stuck(f"broker {self.node_id} does not start: {reason}") from None
            else:
                return

    def reason(self) -> str:
        """Return why it has ended: the lines for a person since its start, or the last one."""
        lines = self._lines(self._started_at)
        return "; ".join([one for one in lines if one.startswith(_FOR_A_PERSON)] or lines[-1:])

    def bugs(self) -> list[str]:
        """Return the lines of its log about errors that nothing in the present code expects."""
        lines = self._lines(self._renewed_at) if self._renewed_at >= 0 else []
        return [line for line in lines if any(one in line for one in _BUGS)]

    def _lines(self, position: int) -> list[str]:
        with self.log_file.open("rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace").splitlines()

    def disk_failures(self) -> int:
        """Return how many operations its disk has refused, 0 if it does not say."""
        return sum(int(float(one)) for one in _DISK_FAILURES.findall(self._page("/metrics")))

    def health(self) -> str:
        """Return its problems as text, "" if it does not answer."""
        return self._page("/health")

    def _page(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"{self.http}{path}", timeout=_PAGE_S) as answer:
                return str(answer.read(), errors="replace")
        except urllib.error.HTTPError as refusal:
            return str(refusal.read(), errors="replace")
        except (OSError, http.client.HTTPException):
            return ""

    def wipe(self) -> None:
        """Remove the files of a broker that is down."""
        shutil.rmtree(self.data, ignore_errors=True)
