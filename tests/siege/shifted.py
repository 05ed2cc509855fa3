"""`odradek`, with a wall clock that is off by as much as a file says.

    python -m tests.siege.shifted serve ...

SIEGE_CLOCK names a file of eight bytes: the milliseconds to add, as a signed big-endian number.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

from odradek.broker.clock import SystemClock
from odradek.cli.main import main

_OFFSET = struct.Struct(">q")


def write_offset(file: Path, offset_ms: int) -> None:
    """Let the clock of a broker jump."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(_OFFSET.pack(offset_ms))


def _shift(file: Path) -> None:
    with file.open("rb") as opened:
        offset = mmap.mmap(opened.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def now_ms(self: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + int(_OFFSET.unpack(offset[:])[0])

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    _shift(Path(os.environ["SIEGE_CLOCK"]))
    main()
