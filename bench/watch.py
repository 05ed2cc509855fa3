"""Watches brokers' processes: their memory and CPU time; and prepares bytecode for a start."""

from __future__ import annotations

import compileall
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bench.pairs import Broker
from bench.processes import ROOT, resident_bytes

_LOOK_S = 0.1
_PACKAGES = ("protocol", "config", "storage", "cleaner", "broker", "cli")
# Together with a process's id, the id of the clock of its threads' CPU time
# (clock_getcpuclockid(3)), which counts nanoseconds where /proc/[pid]/stat counts 10 ms.
_CPUCLOCK_SCHED = 2
_IDLE_LOOK_S, _IDLE_SHARE, _IDLE_TIMEOUT_S = 0.5, 0.05, 60.0


class MemoryWatch:
    """Samples a broker's resident memory in a thread, and keeps the largest value."""

    def __init__(self, broker: Broker) -> None:
        assert broker.process is not None
        self._process = broker.process
        self.most_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.most_bytes = max(self.most_bytes, resident_bytes(self._process))


class Running(Protocol):
    """A broker or another server."""

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """Its process."""


def cpu_s(server: Running) -> float:
    """Return the CPU seconds that a server has used since its start, its workers included."""
    assert server.process is not None
    return _cpu_s(server.process.pid)


def _cpu_s(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED) + sum(map(_cpu_s, children_of(pid)))


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children. Raises OSError if it has ended."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def cpu_of(broker: Broker, work: Callable[[], object]) -> float:
    """Run some work; return the CPU seconds that it costs the broker."""
    before_s = cpu_s(broker)
    work()
    return cpu_s(broker) - before_s


def wait_until_idle(broker: Broker) -> None:
    """Wait until a broker without requests uses almost no CPU: all code is loaded."""
    deadline_s = time.monotonic() + _IDLE_TIMEOUT_S
    while cpu_of(broker, lambda: time.sleep(_IDLE_LOOK_S)) > _IDLE_SHARE * _IDLE_LOOK_S:
        assert time.monotonic() < deadline_s, "the broker is busy with something"


def write_bytecode(root: Path = ROOT) -> None:
    """Compile the packages to bytecode, as pip does when it installs them."""
    for name in _PACKAGES:
        compileall.compile_dir(root / name, quiet=2)
