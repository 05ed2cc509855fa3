"""The broker's reaction to signals.

    SIGTERM, SIGINT   stop: answer begun requests, make all durable, leave the mark of a clean stop
    a second one      end at once: the next start recovers, as after a crash
    SIGHUP            read the settings again (broker/metadata/configs.py), and continue

One of several workers leaves SIGINT to their supervisor, which a terminal sends to all of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Signals:
    """Events that signals set; the event loop owns them."""

    def __init__(self, say: Callable[[str], None], stop_fd: int | None = None) -> None:
        """Handle the signals from now on; `say` prints why the process has ended.

        `stop_fd` is a pipe of a worker's supervisor, at its end once all workers are to stop.
        """
        self.stop = asyncio.Event()
        # Set when all workers stop, so that none can take over from this one.
        self.all_stop = asyncio.Event()
        self.reload = asyncio.Event()
        self._say = say
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        if stop_fd is None:
            loop.add_signal_handler(signal.SIGINT, self._asked_to_stop)
        else:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            # The supervisor has blocked them, so that none came too early.
            handled = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
            loop.add_reader(stop_fd, self._all_asked_to_stop, stop_fd)

    def _all_asked_to_stop(self, stop_fd: int) -> None:
        asyncio.get_running_loop().remove_reader(stop_fd)
        self.all_stop.set()
        self.stop.set()

    def _asked_to_stop(self) -> None:
        if not self.stop.is_set():
            self.stop.set()
            return
        self._say("ended by a second signal before all was made durable, the next start recovers")
        # Every other exit would take long: it joins threads and flushes files.
        os._exit(1)
