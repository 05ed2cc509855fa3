"""The broker's reaction to signals.

    SIGTERM, SIGINT   stop: answer begun requests, make all durable, leave the mark of a clean stop
    a second one      end at once: the next start recovers, as after a crash
    SIGHUP            read the settings again (broker/metadata/configs.py), and continue
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Signals:
    """Events that signals set; the event loop owns them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Handle the signals from now on; `say` prints why the process has ended."""
        self.stop = asyncio.Event()
        self.reload = asyncio.Event()
        self._say = say
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)

    def _asked_to_stop(self) -> None:
        if not self.stop.is_set():
            self.stop.set()
            return
        self._say("ended by a second signal before all was made durable, the next start recovers")
        # Every other exit would take long: it joins threads and flushes files.
        os._exit(1)
