"""Requests to the object store by method and purpose, and whether it answers.

    wal        new entries of the WAL
    segments   new objects with segments
    reads      for consumers, the cleaner, and brokers that take partitions over
    garbage    objects that are deleted
    probe      the proofs of a start
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import field
from time import perf_counter_ns

from odradek.broker.counters.latency import Counts, Times
from odradek.dataclass import dataclass
from odradek.storage.objects.counting import DELETE, PUT, Request
from odradek.storage.objects.store import (
    ObjectExists,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
)

WAL, SEGMENTS, READS, GARBAGE, PROBE = "wal", "segments", "reads", "garbage", "probe"
PURPOSES = (WAL, SEGMENTS, READS, GARBAGE, PROBE)

_NS_PER_MS = 1_000_000
# The errors that a probe asks for.
_PROOFS = (ObjectExists, ObjectMissing)


@dataclass(slots=True)
class _Sums:
    """The sums of a purpose."""

    methods: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # by the class of the error
    sent_bytes: int = 0
    received_bytes: int = 0
    times: Times = field(default_factory=Times)


@dataclass(frozen=True, slots=True)
class PurposeCounts:
    """The requests of one purpose since the start; those that failed are among the methods."""

    methods: Mapping[str, int]
    errors: Mapping[str, int]
    sent_bytes: int
    received_bytes: int
    times: Counts
    total_us: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last error of a store that did not answer, or refused."""

    text: str
    last_ms: int  # ago
    # Since the first one without an answer in between; None after an answer, or a long pause.
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Tally:
    """The requests by purpose and method, and the bytes received by purpose."""

    requests: Mapping[tuple[str, str], int]
    received_bytes: Mapping[str, int]


class ObjectRequests:
    """Threads count here, under one lock for a microsecond; the event loop reads."""

    def __init__(self, pause_ms: int = 60_000) -> None:
        """`pause_ms` is longer than a request takes; after it nothing repeats one that failed."""
        self._pause_ns = pause_ms * _NS_PER_MS
        self._lock = threading.Lock()
        self._sums: defaultdict[str, _Sums] = defaultdict(_Sums)
        self._retries = self._hedged = 0
        self._error, self._error_ns = "", 0
        # Since when requests have failed, by whether they are PUTs. A store that takes no PUTs may
        # still answer others; one that takes them works.
        self._failing_ns: dict[bool, int] = {}
        self._failing_key = ""  # of the last PUT that failed

    def count(self, request: Request) -> None:
        """Count a request that has ended."""
        with self._lock:
            purpose = purpose_of(request.method, request.key)
            sums = self._sums[purpose]
            sums.methods[request.method] += 1
            sums.sent_bytes += request.sent_bytes
            sums.received_bytes += request.received_bytes
            sums.times.observe(request.begun_ns)
            error = request.error
            if error is not None and not (purpose == PROBE and isinstance(error, _PROOFS)):
                sums.errors[type(error).__name__] += 1
            is_put = request.method == PUT
            if isinstance(error, StoreUnavailable | StoreRefused):
                self._error, self._error_ns = str(error), perf_counter_ns()
                self._failing_ns.setdefault(is_put, request.begun_ns)
                self._failing_key = request.key if is_put else self._failing_key
            # A PUT whose object is there was taken: only its answer was lost.
            elif is_put or (error is None and request.key == self._failing_key):
                self._failing_ns.clear()
            else:
                self._failing_ns.pop(False, None)

    def count_retry(self) -> None:
        """Count a request that is sent again."""
        with self._lock:
            self._retries += 1

    def count_hedged(self) -> None:
        """Count a request that is sent again before the answer to the first one."""
        with self._lock:
            self._hedged += 1

    @property
    def hedged(self) -> int:
        """The requests that were sent again before the answers to the first ones."""
        return self._hedged

    @property
    def retries(self) -> int:
        """The requests that were sent again."""
        return self._retries

    def by_purpose(self) -> dict[str, PurposeCounts]:
        """Return the counts of all purposes, in the order of PURPOSES."""
        with self._lock:
            return {purpose: _copied(self._sums[purpose]) for purpose in PURPOSES}

    def tally(self) -> Tally:
        """Return the numbers that bills and rates are made of."""
        with self._lock:
            return Tally(
                {
                    (purpose, method): count
                    for purpose, one in self._sums.items()
                    for method, count in one.methods.items()
                },
                {purpose: one.received_bytes for purpose, one in self._sums.items()},
            )

    def trouble(self) -> Trouble | None:
        """Return the last error, None if there was none."""
        with self._lock:
            if not self._error:
                return None
            now_ns, since_ns = perf_counter_ns(), min(self._failing_ns.values(), default=None)
            if now_ns - self._error_ns > self._pause_ns:
                since_ns = None
            return Trouble(
                self._error,
                (now_ns - self._error_ns) // _NS_PER_MS,
                None if since_ns is None else (now_ns - since_ns) // _NS_PER_MS,
            )


def purpose_of(method: str, key: str) -> str:
    """Return the purpose of a request by its method and key."""
    if key.startswith("probe/"):
        return PROBE
    if method == DELETE:
        return GARBAGE
    if method == PUT:
        return WAL if key.startswith("wal/") else SEGMENTS
    return READS


def _copied(sums: _Sums) -> PurposeCounts:
    return PurposeCounts(
        dict(sums.methods),
        dict(sums.errors),
        sums.sent_bytes,
        sums.received_bytes,
        sums.times.counts.copy(),
        sums.times.total_us,
    )
