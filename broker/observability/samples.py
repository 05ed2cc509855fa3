"""Samples of the last quarter of an hour, one a second, which the web page draws.

A sample is the growth of the broker's counts since the sample before. Samples do not outlive a
restart, and none reads the partitions: the cost does not depend on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import reduce
from time import monotonic
from typing import TYPE_CHECKING

from odradek.broker.counters.latency import BUCKET_COUNT, Counts, minus, plus, quantile_us
from odradek.dataclass import dataclass
from odradek.protocol.frames import FETCH_KEY, PRODUCE_KEY

if TYPE_CHECKING:
    from odradek.broker.observability.observed import Observed

KEPT = 15 * 60
# These wait for records, or for other members, as long as the client asks: Fetch, JoinGroup,
# SyncGroup, ShareFetch. In one percentile with the others, they would hide slow requests.
_PATIENT_KEYS = frozenset((FETCH_KEY, 11, 14, 78))
_NOTHING: Counts = (0,) * BUCKET_COUNT
# In the order of a sample's values.
_COLUMNS = (
    "at_ms",
    "bytes_in",
    "bytes_out",
    "records_in",
    "requests",
    "request_p50_ms",
    "request_p99_ms",
    "produce_p50_ms",
    "produce_p99_ms",
    "fetch_p50_ms",
    "fetch_p99_ms",
    "cleaner_bytes_read",
    "cleaner_bytes_written",
    "connections",
)

Sample = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts since the start, and the number of open connections."""

    bytes_in: int
    bytes_out: int
    records_in: int
    requests: int
    requests_us: Counts  # without those of _PATIENT_KEYS
    produce_us: Counts
    fetch_us: Counts
    cleaner_bytes_read: int
    cleaner_bytes_written: int
    connections: int


def count(broker: Observed) -> Counted:
    """Read the counts of a broker."""
    metrics, cleaned = broker.metrics, broker.cleaner.scheduler.progress.io_bytes()
    times = {key: one.counts.copy() for key, one in metrics.times.items()}
    prompt = (one for key, one in times.items() if key not in _PATIENT_KEYS)
    return Counted(
        bytes_in=metrics.all_topics.bytes_in,
        bytes_out=metrics.all_topics.bytes_out,
        records_in=metrics.all_topics.records_in,
        requests=metrics.request_total,
        requests_us=reduce(plus, prompt, _NOTHING),
        produce_us=times.get(PRODUCE_KEY, _NOTHING),
        fetch_us=times.get(FETCH_KEY, _NOTHING),
        cleaner_bytes_read=cleaned.read,
        cleaner_bytes_written=cleaned.written,
        connections=len(broker.server.connections),
    )


class Samples:
    """The samples; the event loop owns them."""

    def __init__(
        self,
        count: Callable[[], Counted],
        now_ms: Callable[[], int],
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """Begin. `now_s` never goes back, unlike the wall clock of `now_ms`."""
        self._count, self._now_ms, self._now_s = count, now_ms, now_s
        self._kept: deque[Sample] = deque(maxlen=KEPT)
        self._last, self._last_s = count(), now_s()

    async def take(self) -> None:
        """Take a sample of the time since the last sample."""
        last, counted = self._last, self._count()
        last_s, now_s = self._last_s, self._now_s()
        if now_s <= last_s:
            return
        self._last, self._last_s = counted, now_s
        self._kept.append(
            (self._now_ms(), *_since(last, counted, now_s - last_s), counted.connections)
        )

    def as_json(self, since_ms: int = 0) -> dict[str, object]:
        """Return the samples after a moment, oldest first, as a list for each column.

        Counts are per second. A latency is null for a second without such requests. The latency
        in `request_…` excludes Fetch, ShareFetch, JoinGroup and SyncGroup, which wait by design.
        """
        rows = [one for one in self._kept if one[0] is not None and one[0] > since_ms]
        columns: Iterable[Iterable[float | None]] = (
            zip(*rows, strict=True) if rows else ((),) * len(_COLUMNS)
        )
        return {
            "now_ms": self._now_ms(),
            "kept_max": KEPT,
            "columns": {
                name: list(values) for name, values in zip(_COLUMNS, columns, strict=True)
            },
        }


def _since(last: Counted, now: Counted, passed_s: float) -> Sample:
    """Return the values of a sample, without its time and its connections."""

    def rate(later: int, earlier: int) -> float:
        return round((later - earlier) / passed_s, 1)

    return (
        rate(now.bytes_in, last.bytes_in),
        rate(now.bytes_out, last.bytes_out),
        rate(now.records_in, last.records_in),
        rate(now.requests, last.requests),
        *_percentiles_ms(minus(now.requests_us, last.requests_us)),
        *_percentiles_ms(minus(now.produce_us, last.produce_us)),
        *_percentiles_ms(minus(now.fetch_us, last.fetch_us)),
        rate(now.cleaner_bytes_read, last.cleaner_bytes_read),
        rate(now.cleaner_bytes_written, last.cleaner_bytes_written),
    )


def _percentiles_ms(counts: Counts) -> tuple[float | None, float | None]:
    p50_us, p99_us = quantile_us(counts, 0.5), quantile_us(counts, 0.99)
    return _ms(p50_us), _ms(p99_us)


def _ms(time_us: float | None) -> float | None:
    return None if time_us is None else round(time_us / 1000, 3)
