"""Regular expressions that clients bring, in RE2's language: matched in time linear in a name.

Linear is not little: an expression of 21 bytes may become a program of 10,000 steps, and RE2 takes
up to 13 ns a step for each byte of a name. A thousand topics took it four seconds. So what may
take long is matched in a thread, in slices, so that one costly expression does not hold up others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import re2

from broker.loop.priority import give_way

# Of RE2's own 8 MiB some hundred bytes take all. Enough for 32 KiB of names, or for twenty classes
# of all letters; what takes more is refused as too large.
_MEMORY_MAX = 2**20
# Classes of Unicode: RE2 takes up to 170 us to read one, and most expressions of so many are
# too large once they are compiled. Of 15 KB it took 0.9 s to find that out.
_CLASSES_MAX = 100
# What is matched at once: steps of a program times bytes of names, some 5 ms.
_AT_ONCE_MAX = 400_000
# How long one caller has the thread before another's turn comes.
_SLICE_S = 0.05


def compile_expression(text: str) -> Any:
    """Compile an expression; raises re2.error for what is none, or is too large."""
    if text.count("\\p") + text.count("\\P") > _CLASSES_MAX:
        raise re2.error(b"pattern too large - compile failed")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        return re2.compile(text, options)
    finally:
        re2.purge()  # else the last 128 of anybody's stay in memory


def is_quick(pattern: Any, names: Iterable[str]) -> bool:
    """Return whether a compiled expression can be matched with names in some milliseconds."""
    return bool(pattern.programsize * sum(map(len, names)) <= _AT_ONCE_MAX)


def matched(pattern: Any, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a compiled expression matches as a whole."""
    return frozenset(name for name in names if pattern.fullmatch(name))


class Matching:
    """The thread that matches expressions; the event loop owns it.

    RE2 leaves the interpreter to others while it matches.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def match(self, pattern: Any, names: Collection[str]) -> frozenset[str]:
        """Return the names that a compiled expression matches as a whole."""
        found: set[str] = set()
        left: Sequence[str] = list(names)
        while left:
            count = await self._in_thread(_match_some, pattern, left, found)
            left = left[count:]
        return frozenset(found)

    async def match_all(
        self, expressions: Iterable[str], names: Collection[str]
    ) -> dict[str, frozenset[str]]:
        """Return the names that each expression matches; one that is none matches none."""
        found = {}
        for expression in expressions:
            try:
                pattern = await self._in_thread(compile_expression, expression)
            except re2.error:
                found[expression] = frozenset[str]()
                continue
            found[expression] = await self.match(pattern, names)
        return found

    def close(self) -> None:
        """End the thread once it is done with what it has begun."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "expressions", initializer=give_way)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _match_some(pattern: Any, names: Sequence[str], found: set[str]) -> int:
    """Match names until the slice is over; return how many were looked at."""
    end_s = time.monotonic() + _SLICE_S
    for count, name in enumerate(names, start=1):
        if pattern.fullmatch(name):
            found.add(name)
        if time.monotonic() >= end_s:
            return count
    return len(names)
