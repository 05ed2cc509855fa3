"""Looks at brokers' processes: their memory, their CPU time, and how they are started."""

from __future__ import annotations

import compileall
import os
import threading
from collections.abc import Callable
from pathlib import Path

from bench.pairs import Broker
from bench.processes import ROOT, resident_bytes

_LOOK_S = 0.1
_PACKAGES = ("protocol", "config", "storage", "cleaner", "broker", "cli")
_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class MemoryWatch:
    """Looks at a broker's resident memory in a thread, and keeps the most there was."""

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


def cpu_s(broker: Broker) -> float:
    """Return the CPU seconds that a broker has taken since it was started."""
    assert broker.process is not None
    # The name in the second field may hold spaces and brackets.
    stat = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    user, system = stat[11:13]
    return (int(user) + int(system)) / _CLOCK_TICKS_PER_S


def cpu_of(broker: Broker, work: Callable[[], object]) -> float:
    """Return the CPU seconds that something takes of a broker."""
    before_s = cpu_s(broker)
    work()
    return cpu_s(broker) - before_s


def write_bytecode(root: Path = ROOT) -> None:
    """Compile the packages to bytecode, as pip does when it installs them."""
    for name in _PACKAGES:
        compileall.compile_dir(root / name, quiet=2)
