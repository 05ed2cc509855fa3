"""Threads that check producers' batches when that would hold up the event loop for too long.

A batch of a few kilobytes may unpack to 64 MiB, and recompressing that may take seconds. Two
threads check such batches, one request after the other, so that only two are unpacked at a time.

Clients take turns: a client with many such batches delays others by only one of them.

Invariants:

1. At most two requests are checked at a time.
2. The checks of one client begin in the order in which it asked for them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from odradek.broker.loop.priority import give_way
from odradek.broker.process.warm_up import ensure_log_kernels
from odradek.dataclass import dataclass
from odradek.storage.allowance import Allowance, TooLaborious
from odradek.storage.errors import StorageError
from odradek.storage.files import Buffer
from odradek.storage.log import Log
from odradek.storage.validation import CheckedBatch

_THREADS = 2

Verdict = CheckedBatch | StorageError
"""A batch that may be appended, or the error that refuses it."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on the batches of a request, in their order, and the CPU time they took."""

    verdicts: Sequence[Verdict]
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """The check of a request's batches that waits for a thread."""

    check: Callable[[], Verdicts]
    answer: asyncio.Future[Verdicts]


class BatchChecks:
    """The threads; owned by the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(
            _THREADS, thread_name_prefix="check", initializer=give_way
        )
        self._running = 0
        # Each client's checks in their order; the client whose turn is next comes first.
        self._waiting: dict[Hashable, deque[_Asked]] = {}

    def check(
        self,
        batches: Sequence[tuple[Log, Buffer]],
        now_ms: int,
        allowance: Allowance,
        client: Hashable,
    ) -> asyncio.Future[Verdicts]:
        """Check the batches of a request in a thread; only that may use `allowance` meanwhile.

        Clients take turns; `client` is the key of one.
        """
        asked = _Asked(
            lambda: _check_all(batches, now_ms, allowance), self._loop.create_future()
        )
        self._waiting.setdefault(client, deque()).append(asked)
        self._begin()
        return asked.answer

    def close(self) -> None:
        """Begin no further checks; running ones end by themselves."""
        for waiting in self._waiting.values():
            for asked in waiting:
                asked.answer.cancel()
        self._waiting.clear()
        self._pool.shutdown(wait=False)

    def _begin(self) -> None:
        """Give free threads to the clients whose turn it is."""
        while self._waiting and self._running < _THREADS:
            client, waiting = next(iter(self._waiting.items()))
            asked = waiting.popleft()
            del self._waiting[client]
            if waiting:
                self._waiting[client] = waiting  # behind all others
            if not asked.answer.done():  # otherwise its client has gone
                self._running += 1
                running = self._loop.run_in_executor(self._pool, asked.check)
                running.add_done_callback(partial(self._finish, asked.answer))

    def _finish(
        self, answer: asyncio.Future[Verdicts], finished: asyncio.Future[Verdicts]
    ) -> None:
        self._running -= 1
        self._begin()
        if answer.done():
            return
        error = finished.exception()
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(finished.result())


def _check_all(
    batches: Sequence[tuple[Log, Buffer]], now_ms: int, allowance: Allowance
) -> Verdicts:
    begun_ns = time.thread_time_ns()
    allowance.extend_to_thread()
    verdicts = [_check(log, records, now_ms, allowance) for log, records in batches]
    return Verdicts(verdicts, time.thread_time_ns() - begun_ns)


def _check(log: Log, records: Buffer, now_ms: int, allowance: Allowance) -> Verdict:
    try:
        try:
            return log.check(records, now_ms=now_ms, allowance=allowance)
        except TooLaborious:
            ensure_log_kernels()
            allowance.extend_to_kernels()
            return log.check(records, now_ms=now_ms, allowance=allowance)
    except StorageError as error:
        return error
