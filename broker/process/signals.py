"""What signals ask of the broker.

    SIGTERM, SIGINT   stop: answer what has begun, make all durable, leave the mark of a clean stop
    a second one      end at once: the next start recovers, as after a crash
    SIGHUP            read the settings again (broker/metadata/configs.py), and go on
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Signals:
    """Events that signals set; the event loop owns them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take the signals from now on; `say` tells a person why the process has ended."""
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
        # Nothing else would be soon: threads are joined and files flushed on every other way out.
        os._exit(1)
