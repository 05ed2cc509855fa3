"""Starts and watches the brokers of one machine, each a process (`odradek serve --workers N`).

The supervisor serves no client. It prepares the log directories and the catalog (host.py), forks
the workers once all modules are imported, so that they share that memory, and waits:

    a worker has ended      the others lead its partitions; another one is started
    a worker is silent      it is killed, which ends it
    SIGTERM, SIGINT         all workers stop, then the directories are settled
    SIGHUP                  all workers read the settings again
    the supervisor ends     all workers stop: the pipe that they hold is at its end

It has one thread and no event loop: a fork copies nothing that somebody else holds.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Sequence

from odradek.broker.errors import MetadataError
from odradek.broker.workers.host import Host
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError

logger = logging.getLogger(__name__)

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_TICK_S = 0.1
_STILL_S = 1.0
# A worker that ends soon after its start is started again after a pause, which doubles. Before it
# gets its share back, it has to serve for a while: clients that found its port closed try it less
# often, and would wait for it.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 30.0
_HEALTHY_S = 10.0
_BEAT = struct.Struct("Q")
RESTING = 2**64 - 1


class Beats:
    """A counter for each worker, in memory that all processes share.

    It is 0 until the worker serves, and RESTING while it stops: closing many logs takes long.
    """

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, _BEAT.size * count)

    def count(self, at: int) -> int:
        """Return the counter of a worker."""
        (found,) = _BEAT.unpack_from(self._memory, at * _BEAT.size)
        return int(found)

    def beat(self, at: int) -> None:
        """Count one up."""
        _BEAT.pack_into(self._memory, at * _BEAT.size, self.count(at) + 1)

    def rest(self, at: int) -> None:
        """Note that a worker stops, and counts no more."""
        _BEAT.pack_into(self._memory, at * _BEAT.size, RESTING)

    def clear(self, at: int) -> None:
        """Begin again at 0."""
        _BEAT.pack_into(self._memory, at * _BEAT.size, 0)


@dataclass(slots=True)
class _Child:
    """A worker's process; pid 0 while it is not running."""

    at: int
    node_id: int
    pid: int = 0
    started_s: float = 0.0
    pause_s: float = _PAUSE_MIN_S
    start_at_s: float = 0.0
    last_beat: int = 0
    beaten_s: float = 0.0
    has_served: bool = False
    # Whether its partitions still wait for other leaders.
    is_owed: bool = False


class Supervisor:
    """The workers of one machine."""

    def __init__(
        self,
        host: Host,
        node_ids: Sequence[int],
        serve: Callable[[int, Beats, int], int],
        silence_s: float,
        ready: Callable[[], None],
        reloading: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        """`serve` runs a worker to its end, and returns its exit status.

        It gets the number of the worker from 0, the counters, and the read end of a pipe that is
        at its end once the supervisor has gone. `ready` is called once all workers serve, and
        after `reloading`, once they are to read the settings again; `stopping` when all end.
        """
        self._host, self._serve, self._silence_s = host, serve, silence_s
        self._ready, self._reloading, self._stopping = ready, reloading, stopping
        self._children = [_Child(at, node_id) for at, node_id in enumerate(node_ids)]
        self._beats = Beats(len(node_ids))
        self._reader, self._writer = os.pipe()
        self._is_stopping = False
        self._is_ready = False
        self._is_clean = True
        self._looked_s = time.monotonic()
        self._rebalance_at_s = math.inf

    def run(self) -> int:
        """Run the workers until a signal asks to stop, and return the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for child in self._children:
            self._start(child)
        while not (self._is_stopping and all(not one.pid for one in self._children)):
            info = signal.sigtimedwait(_SIGNALS, _TICK_S)
            # After SIGCONT, CPython may return a number that nobody has sent instead of None.
            if info is not None and info.si_signo in _SIGNALS:
                self._take(info.si_signo)
            self._reap()
            self._look_for_silent()
            self._start_due()
            self._rebalance_when_due()
        self._host.settle(is_clean=self._is_clean)
        return 0 if self._is_clean else 1

    def _take(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGHUP:
            self._reloading()
            self._send(signal.SIGHUP)
            self._ready()
            return
        if self._is_stopping:
            # As with a single broker: a second signal ends all at once.
            self._send(signal.SIGTERM)
            return
        self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        self._stopping()
        os.close(self._writer)
        self._writer = -1

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid:
                os.kill(child.pid, number)

    # --- one worker -------------------------------------------------------------------------

    def _start(self, child: _Child) -> None:
        self._beats.clear(child.at)
        now_s = time.monotonic()
        child.last_beat, child.started_s, child.beaten_s = 0, now_s, now_s
        child.has_served = False
        pid = os.fork()
        if pid:
            child.pid = pid
            logger.info("started a worker broker=%d pid=%d", child.node_id, pid)
            return
        status = 1
        try:
            os.close(self._writer)
            # Signals stay blocked until the worker handles them (broker/process/signals.py).
            status = self._serve(child.at, self._beats, self._reader)
        finally:
            os._exit(status)

    def _serves(self, child: _Child) -> None:
        if self._is_ready:  # it was started again
            self._rebalance_at_s = time.monotonic() + _HEALTHY_S
        elif all(one.has_served for one in self._children):
            self._is_ready = True
            self._ready()

    def _rebalance_when_due(self) -> None:
        if self._is_stopping or time.monotonic() < self._rebalance_at_s:
            return
        self._rebalance_at_s = math.inf
        try:
            self._host.rebalance()
        except (MetadataError, StorageError) as error:
            logger.error("partitions are not spread evenly: %s", error)

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.pid = 0
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, status: int) -> None:
        if self._is_stopping:
            self._is_clean &= status == 0
            return
        if status > 0 and not self._is_ready:
            # It has printed the reason; the others would fail like it, or wait for it.
            self._is_clean = False
            self._stop()
            return
        if status:
            logger.error("worker ended broker=%d cause=%s", child.node_id, _cause(status))
        else:
            logger.info("worker stopped broker=%d", child.node_id)
        child.is_owed = True
        self._take_over(child)
        now_s = time.monotonic()
        if now_s - child.started_s >= _HEALTHY_S:
            child.pause_s = _PAUSE_MIN_S
            child.start_at_s = now_s
        else:
            child.start_at_s = now_s + child.pause_s
            child.pause_s = min(child.pause_s * 2, _PAUSE_MAX_S)

    def _take_over(self, child: _Child) -> None:
        try:
            self._host.take_over(child.node_id)
        except (MetadataError, StorageError) as error:
            logger.error("partitions wait for a leader broker=%d: %s", child.node_id, error)
        else:
            child.is_owed = False

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for child in self._children:
            if child.pid or self._is_stopping or now_s < child.start_at_s:
                continue
            if child.is_owed:
                child.start_at_s = now_s + _PAUSE_MIN_S
                self._take_over(child)
            else:
                self._start(child)

    def _look_for_silent(self) -> None:
        """Kill a worker whose event loop has stood still for as long as a session lasts."""
        now_s = time.monotonic()
        stood_still = now_s - self._looked_s > _STILL_S
        self._looked_s = now_s
        for child in self._children:
            beat = self._beats.count(child.at)
            # If this process stood still, the workers may have, too: the machine was suspended.
            if beat != child.last_beat or beat in (0, RESTING) or stood_still:
                child.last_beat, child.beaten_s = beat, now_s
                if beat and not child.has_served:
                    child.has_served = True
                    self._serves(child)
            elif child.pid and now_s - child.beaten_s >= self._silence_s:
                logger.error("kill a worker that is silent broker=%d", child.node_id)
                os.kill(child.pid, signal.SIGKILL)
                child.beaten_s = now_s


def _cause(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"
