"""Threads that check producers' batches when that would take the event loop too long.

A batch of a few kilobytes may unpack to 64 MiB, and recompressing that may take seconds. Two
threads check such batches, one request after the other; memory is bounded by what the two unpack.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from broker.priority import give_way
from broker.warm_up import ensure_log_kernels
from storage.allowance import Allowance, TooLaborious
from storage.errors import StorageError
from storage.files import Buffer
from storage.log import Log
from storage.validation import CheckedBatch

_THREADS = 2

Verdict = CheckedBatch | StorageError
"""A batch that may be appended, or why it is refused."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What came out for the batches of a request, in their order, and the CPU time it took."""

    verdicts: Sequence[Verdict]
    cpu_ns: int


class BatchChecks:
    """The threads; owned by the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(
            _THREADS, thread_name_prefix="check", initializer=give_way
        )

    def check(
        self, batches: Sequence[tuple[Log, Buffer]], now_ms: int, allowance: Allowance
    ) -> asyncio.Future[Verdicts]:
        """Check the batches of a request; nothing else may use its allowance meanwhile."""
        return self._loop.run_in_executor(self._pool, _check_all, batches, now_ms, allowance)

    def close(self) -> None:
        """Begin no further check; those under way end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


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
