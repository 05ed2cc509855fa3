"""`odradek serve --workers N` as a process, and its workers one by one."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import free_port
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

_STARTED = re.compile(r"started a worker broker=(\d+) pid=(\d+)")


def pids_of_workers(log: str) -> Mapping[int, int]:
    """Return the processes of workers by node id, the last ones that a supervisor has started."""
    return {int(one): int(pid) for one, pid in _STARTED.findall(log)}


@dataclass
class Workers(ForkedOdradek):
    """Several brokers of one machine. `kill` ends one worker, `start` a supervisor if needed."""

    source: random.Random = field(default_factory=lambda: random.Random(1))
    count: int = 2
    ports: Mapping[int, int] = field(default_factory=dict)
    kill_count: int = 0

    @property
    def bootstrap(self) -> str:
        """The addresses of all workers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self) -> float:
        """Start the workers, unless they run; wait until the first answers."""
        if self.process is not None:
            return 0.0
        return super().start()

    def pid_of(self, node_id: int) -> int:
        """Return the process of a worker, the last one that was started."""
        return pids_of_workers(self.log_text())[node_id]

    def send(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to a worker."""
        os.kill(self.pid_of(node_id), number)

    def kill(self) -> None:
        """Kill a worker that runs, and return once the supervisor has noticed."""
        node_id = self.source.choice(list(self.ports))
        before = self.pid_of(node_id)
        os.kill(before, signal.SIGKILL)
        self.kill_count += 1
        wait_until(lambda: self.pid_of(node_id) != before, "the worker is started again")

    def kill_all(self) -> None:
        """Kill the supervisor and all workers at once."""
        pids = [self.pid_of(node_id) for node_id in self.ports]
        super().kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def workers(directory: Path, count: int = 2, settings: Mapping[str, str] | None = None) -> Workers:
    """Return workers with ports of their own, not started yet."""
    ports = {number: free_port() for number in range(1, count + 1)}
    own = {
        f"odradek.worker.{number}.listeners": f"PLAINTEXT://127.0.0.1:{port}"
        for number, port in ports.items()
    }
    return Workers(
        directory,
        {**own, **(settings or {})},
        options=("--workers", str(count)),
        port=ports[1],
        count=count,
        ports=ports,
    )
