"""Ends a computation on the event loop that takes too long.

Python's regular expressions have no time limit: an expression with six groups takes two seconds
for a name of 1,300 characters that was made for it. But they check for signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TookTooLong(Exception):
    """The body was interrupted."""


@contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """Raise TookTooLong in the body once the process has used so much CPU time.

    Only the main thread, which runs the event loop, gets signals; other threads have no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_running = True

    def interrupt(_: int, __: FrameType | None) -> None:
        if is_running:
            raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
