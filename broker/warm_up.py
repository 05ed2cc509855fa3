"""Loads the compiled kernels: `python -m broker.warm_up` compiles them once, into the cache.

The broker does it in a thread once a client comes that has something to do; until then the plain
twins serve, and the 130 MB that the compiler takes are not there. Half of those are given back
when all is loaded: they are the compiler's own code, which nothing runs any more.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import mmap
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_COMPILER = "libllvmlite"
# 7f3c5e000000-7f3c60a1b000 r-xp 00e51000 fe:00 1234 /usr/lib/libllvmlite.so
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .(.)..\s")


def warm_up() -> None:
    """Load or compile every kernel, then have the log use them."""
    started = time.monotonic()
    # Each step touches other parts of the compiler.
    for module in ("numba", "protocol.records"):
        importlib.import_module(module)
        leave_compiler()
    from protocol import records
    from storage import validation

    records.warm_up()
    validation.use_kernels()
    importlib.import_module("cleaner.clean")  # the cleaner's kernels come with it
    leave_compiler()
    logger.debug("loaded kernels seconds=%.2f", time.monotonic() - started)


def start_warm_up() -> None:
    """Warm up in a thread that no stop waits for: to compile takes minutes on a slow machine."""
    threading.Thread(target=_run, name="warm-up", daemon=True).start()


def _run() -> None:
    try:
        warm_up()
        gc.freeze()  # as at the start: modules, and what Numba keeps
    except Exception:  # The root of a thread.
        logger.exception("could not load the kernels, so that the slow twins go on serving")


def leave_compiler() -> None:
    """Give back the memory of the compiler's code; were it run again, it would be read again."""
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():  # another system than Linux
        return
    madvise = ctypes.CDLL(None).madvise
    for start, end in _unchanged(smaps.read_text().splitlines()):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _unchanged(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield where the compiler's library is mapped and holds just what is in its file.

    What was written to since would be lost: the tables that the loader has filled in.
    """
    place: tuple[int, int] | None = None
    for line in lines:
        head = _MAPPING.match(line)
        if head is not None:
            place = (int(head[1], 16), int(head[2], 16)) if _COMPILER in line else None
            if head[3] == "w":
                place = None
        elif place is not None and line.startswith("Private_Dirty:"):
            if line.split()[1] == "0":
                yield place
            place = None


if __name__ == "__main__":
    warm_up()
