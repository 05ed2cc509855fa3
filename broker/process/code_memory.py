"""The memory that code takes which has run and will hardly run again, and how it is given back.

Most of what libraries are is used once, while they are loaded: of the 20 MB of an idle broker's
code 8 are used again. The compiler of the kernels is 150 MB, of which loading kernels that are
compiled runs through 70. The system keeps what was touched until it needs the memory; what is
given back comes from the page cache should it run again, 64 KiB in a microsecond.

The compiler's code is given back while kernels load, too, again and again: a machine must have
what a process takes at most.
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
# Loading the log's kernels took 157 MB at most without, 119 with 20 ms between, 101 with 2 ms.
_REST_MIN_S = 0.002
# To compile runs through the same code again and again: at most a fifth of the time goes there.
_RESTS_PER_WORK = 4

Place = tuple[int, int]


def give_code_back() -> None:
    """Give back the memory of all code: what is still used comes back. Takes some ms."""
    _give_back(_places(""))


@contextmanager
def compiler_given_back() -> Iterator[None]:
    """Load the compiler, and give the memory of its code back while the body uses it.

    Then that of all code. Raises ImportError.
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
    """Yield where a file with `name` in its path is mapped, and holds what is in the file.

    `lines` are those of Linux' smaps. What was written to since would be lost, wherever it is
    now: the tables that the loader has filled in. What cannot be written to stays as it is.
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
        elif line.startswith("VmFlags:"):  # the last line of each
            if not is_changed:
                yield place
            place = None


def _places(name: str) -> Sequence[Place]:
    try:
        return list(unchanged(_SMAPS.read_text().splitlines(), name))
    except OSError:  # another system than Linux, or a sandbox that does not tell
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
