"""Regular expressions of clients, in RE2's language: matched in time linear in a name.

Linear time may still be long: an expression of 21 bytes may become a program of 10,000 steps, and
RE2 takes up to 13 ns a step for each byte of a name. A thousand topics took it four seconds. So a
thread matches costly expressions, in slices, and one of them does not hold up the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import re2

from odradek.broker.loop.priority import give_way

# An expression of some hundred bytes takes all of the 8 MiB that RE2 allows by default. This limit
# is enough for 32 KiB of names, or for twenty classes of all letters; RE2 refuses larger programs.
_MEMORY_MAX = 2**20
# Unicode classes of an expression: RE2 takes up to 170 us to read one, and most expressions with
# more are too large once they are compiled. RE2 took 0.9 s to find that out for one of 15 KB.
_CLASSES_MAX = 100
# Work that the event loop may do itself: program steps times bytes of names, some 5 ms.
_AT_ONCE_MAX = 400_000
# The time for which one caller has the thread before the turn of another.
_SLICE_S = 0.05


def compile_expression(text: str) -> Any:
    """Compile an expression; raises re2.error for a text that is invalid or too large."""
    if text.count("\\p") + text.count("\\P") > _CLASSES_MAX:
        raise re2.error(b"pattern too large - compile failed")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        return re2.compile(text, options)
    finally:
        re2.purge()  # Otherwise re2 keeps the last 128 expressions in memory.


def is_quick(pattern: Any, names: Iterable[str]) -> bool:
    """Return whether matching a compiled expression with names takes only some milliseconds."""
    return bool(pattern.programsize * sum(map(len, names)) <= _AT_ONCE_MAX)


def matched(pattern: Any, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a compiled expression matches as a whole."""
    return frozenset(name for name in names if pattern.fullmatch(name))


class Matching:
    """The thread that matches expressions; the event loop owns it.

    RE2 releases the interpreter's lock while it matches.
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
        """Return the names that each expression matches; an invalid one matches none."""
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
        """End the thread once it has finished its current work."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "expressions", initializer=give_way)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _match_some(pattern: Any, names: Sequence[str], found: set[str]) -> int:
    """Match names until the slice is over; return the number of names looked at."""
    end_s = time.monotonic() + _SLICE_S
    for count, name in enumerate(names, start=1):
        if pattern.fullmatch(name):
            found.add(name)
        if time.monotonic() >= end_s:
            return count
    return len(names)
