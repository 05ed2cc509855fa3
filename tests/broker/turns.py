"""How long the turns of a broker's event loop are: those in which others wait for one request.

    python -m tests.broker.turns serve …   as `odradek serve`; writes the file of TURNS at SIGUSR2

Time is the loop's own on a processor, so that other processes on the machine do not count. Looks
for garbage do not count, either: they come when they come, and take as long as much is alive.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import thread_time

from bench.processes import OdradekProcess
from odradek.broker.composition import Broker
from odradek.cli.main import main
from tests.broker.cost import PATIENCE_S, exchange, rest
from tests.broker.kafka_peer import Peer
from tests.support.waiting import wait_until

_VARIABLE = "TURNS"


def metered(process: OdradekProcess) -> OdradekProcess:
    """Have a process that is not started yet measure its turns when it is asked to."""
    process.module = __name__
    process.environment = {**process.environment, _VARIABLE: str(_path(process))}
    return process


def longest_turn_s(
    broker: OdradekProcess, connect: Callable[[], Peer], frame: bytes, *, waits: bool = True
) -> float:
    """Send a frame on a new connection; return the longest turn until it is answered."""
    with connect() as peer:
        rest(broker)
        _toggle(broker)
        exchange(peer, frame, waits=waits)
        return float(_toggle(broker))


def _path(process: OdradekProcess) -> Path:
    return process.directory / "turns"


def _toggle(process: OdradekProcess) -> str:
    """Have the measuring begun or ended; return what is written then."""
    path = _path(process)
    path.unlink(missing_ok=True)
    assert process.process is not None
    process.process.send_signal(signal.SIGUSR2)
    wait_until(path.exists, "the broker writes how long its turns were", PATIENCE_S)
    return path.read_text()


class _Meter:
    """Runs in each turn of the loop while it is measured: the loop does not sleep then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop, self._path = loop, path
        self._is_on = False
        self._longest_s = self._at_s = self._collected_s = 0.0
        gc.callbacks.append(self._collect)

    def toggle(self) -> None:
        """Begin, or end."""
        if not self._is_on:
            self._is_on, self._longest_s = True, 0.0
            self._at_s = thread_time() - self._collected_s
            self._loop.call_soon(self._turn)
        else:
            self._is_on = False
        made = self._path.with_suffix(".made")
        made.write_text(str(self._longest_s))
        made.rename(self._path)

    def _collect(self, phase: str, _: object) -> None:
        """Count the time of a look for garbage by the loop's thread."""
        if threading.get_ident() == threading.main_thread().ident:
            self._collected_s += thread_time() if phase == "stop" else -thread_time()

    def _turn(self) -> None:
        now_s = thread_time() - self._collected_s
        self._longest_s = max(self._longest_s, now_s - self._at_s)
        self._at_s = now_s
        if self._is_on:
            self._loop.call_soon(self._turn)


def _meter_brokers(path: Path) -> None:
    start = Broker.start

    async def start_metered(broker: Broker) -> None:
        await start(broker)
        broker.loop.add_signal_handler(signal.SIGUSR2, _Meter(broker.loop, path).toggle)

    Broker.start = start_metered  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _meter_brokers(Path(os.environ[_VARIABLE]))
    main()
