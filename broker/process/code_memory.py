"""Gives back the memory of code that has run and will hardly run again.

Most code of libraries is used once, while they are loaded: of the 20 MB of an idle broker's code
8 are used again. The compiler of the kernels has 150 MB, of which the loading of compiled kernels
uses 70. The system keeps used pages until it needs the memory. If code that was given back runs
again, it comes from the page cache, 64 KiB in a microsecond.

The compiler's code is given back also while kernels load, again and again, since a machine needs
memory for the peak of a process.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_COMPILER = "libllvmlite"
# 7f3c5e000000-7f3c60a1b000 r-xp 00e51000 fe:00 1234    /usr/lib/libllvmlite.so
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .(.).(.) \S+ \S+ \S+ *(.*)")
# The peak while the log's kernels load was 157 MB without, 119 with 20 ms between, 101 with 2 ms.
_REST_MIN_S = 0.002
# Compiling runs the same code again and again: at most a fifth of the time is spent giving back.
_RESTS_PER_WORK = 4

Place = tuple[int, int]


def give_code_back() -> None:
    """Give back the memory of all code; used code returns by itself. Takes some ms."""
    _give_back(_places(""))


@contextmanager
def compiler_given_back() -> Iterator[None]:
    """Load the compiler, and give back the memory of its code while the body uses it.

    At the end give back that of all code. Raises ImportError.
    """
    importlib.import_module("llvmlite.binding")
    places, is_over = _places(_COMPILER), threading.Event()
    thread = threading.Thread(
        target=_go_on, args=(places, is_over), name="code-memory", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        give_code_back()


def unchanged(lines: Iterable[str], name: str) -> Iterator[Place]:
    """Yield the unchanged read-only mappings of files with `name` in their path.

    `lines` are those of Linux' smaps. Mappings that were written to, such as the tables that the
    loader fills in, would lose their contents, even from swap, so they are left out.
    """
    place: Place | None = None
    is_changed = False
    for line in lines:
        head = _MAPPING.match(line)
        if head is not None:
            start, end, writable, shared, path = head.groups()
            is_ours = writable == "-" and shared == "p" and path.startswith("/") and name in path
            place, is_changed = (int(start, 16), int(end, 16)) if is_ours else None, False
        elif place is None:
            continue
        elif line.startswith(("Anonymous:", "Private_Dirty:", "Swap:")):
            is_changed |= line.split()[1] != "0"
        elif line.startswith("VmFlags:"):  # the last line of each mapping
            if not is_changed:
                yield place
            place = None


def _places(name: str) -> Sequence[Place]:
    try:
        return list(unchanged(_SMAPS.read_text().splitlines(), name))
    except OSError:  # a system other than Linux, or a sandbox that hides the file
        return []


def _go_on(places: Sequence[Place], is_over: threading.Event) -> None:
    rest_s = _REST_MIN_S
    while places and not is_over.wait(rest_s):
        started = time.thread_time()
        _give_back(places)
        rest_s = max(_REST_MIN_S, _RESTS_PER_WORK * (time.thread_time() - started))


def _give_back(places: Iterable[Place]) -> None:
    madvise = ctypes.CDLL(None).madvise
    for start, end in places:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)
