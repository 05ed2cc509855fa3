"""The priority of the broker's threads that want a processor, or the interpreter, at once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

# With this value the event loop waited a third as often for a processor (bench/cleaner_latency.py
# on a busy machine with two); with 10 more a cleaning took three times as long, for little gain.
_BACKGROUND_NICENESS = 5
# Python lets a thread run for 5 ms before another gets the interpreter: fifty round trips.
# With 0.5 ms the p99 of a round trip beside a cleaning was 2.0 to 2.2 times the one without,
# with 0.1 ms 1.7 times.
_SWITCH_S = 0.0001


def prefer_the_event_loop() -> None:
    """Make threads that run Python code release the interpreter soon, in the whole process."""
    sys.setswitchinterval(_SWITCH_S)


def give_way() -> None:
    """Lower the calling thread's priority, on Linux, which has a niceness per thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may not allow it
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + _BACKGROUND_NICENESS
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
