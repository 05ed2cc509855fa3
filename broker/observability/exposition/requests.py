"""What clients ask for, how long it takes, what goes wrong, and what moves by topic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from broker.counters.latency import BUCKETS_PER_OCTAVE, bound_us, quantile_us
from broker.observability.exposition.families import counter, gauge, histogram, summary

if TYPE_CHECKING:
    from broker.observability.exposition.snapshot import FetchRows, RequestRows, Snapshot, TimesRow

# Kafka's percentiles, as the JMX exporter writes them.
_QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
# From 64 us to 34 s in powers of two.
_BOUNDS = range(6 * BUCKETS_PER_OCTAVE, 26 * BUCKETS_PER_OCTAVE, BUCKETS_PER_OCTAVE)

REQUESTS = counter(
    "kafka_network_requestmetrics_requests_total",
    "Requests by API and version. An old version shows a client that is due for an upgrade.",
    "request",
    "version",
)
ERRORS = counter(
    "kafka_network_requestmetrics_errors_total",
    "Answers with an error code, by API: of Produce and Fetch for each partition, of others where"
    " the answer as a whole has one. Those without an error (NONE in Kafka) are not counted."
    " NOT_COORDINATOR, REBALANCE_IN_PROGRESS and the like are a client's everyday life; look up"
    " others in its log.",
    "request",
    "error",
)
TIMES = summary(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from the moment a request's turn has come, all its bytes read, until its answer"
    " is in the socket's buffer; quantiles of the last five minutes. Fetch includes the wait for"
    " records (fetch.max.wait.ms). When it rises for all, compare CPU and disk.",
    "request",
)
SECONDS = histogram(
    "odradek_request_seconds",
    "Seconds that requests took, measured as kafka_network_requestmetrics_totaltimems, as a"
    " histogram since the start: ask histogram_quantile() for any range of time.",
    "request",
)
MALFORMED = counter(
    "odradek_malformed_requests_total",
    "Connections closed for bytes that are no request: look in the log for the peer.",
)
FAILED = counter(
    "odradek_failed_requests_total",
    "Requests that hit a bug in the broker: report the trace in the log.",
)
REFUSED = counter(
    "odradek_refused_batches_total",
    "Record batches that a log refused: the producer's error says what to change.",
)
_OF_ALL = " Without a topic label: of all topics, so never sum over both."
TOPIC_COUNTERS = {
    attribute: counter(
        f"kafka_server_brokertopicmetrics_{name}_total", f"{text}{_OF_ALL}", "topic"
    )
    for attribute, name, text in (
        ("records_in", "messagesin", "Records appended; silence may mean a producer is stuck."),
        ("bytes_in", "bytesin", "Bytes of record batches appended, as they are stored."),
        ("bytes_out", "bytesout", "Bytes of record batches sent to consumers."),
        (
            "produces",
            "totalproducerequests",
            "Batches that came to be appended. Few records a batch: raise the producer's"
            " linger.ms.",
        ),
        (
            "fetches",
            "totalfetchrequests",
            "Partitions that fetches were answered for; those of a session without news are left"
            " out.",
        ),
        (
            "failed_produces",
            "failedproducerequests",
            "Batches refused for what a producer should not send (order, timestamps, format):"
            " its log has the error, as have the errors by code.",
        ),
        (
            "failed_fetches",
            "failedfetchrequests",
            "Fetches that failed for no reason a client could expect: look in the log for damage.",
        ),
    )
}
PARKED = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Fetches that wait for records; idle consumers have one each.",
    "delayedOperation",
)
SESSIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Fetch sessions that are remembered; max.incremental.fetch.session.cache.slots bounds them.",
)
SESSION_PARTITIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "Partitions of all fetch sessions: what they take of memory grows with it.",
)
EVICTIONS = counter(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "Fetch sessions that had to make room, whose clients send every partition again: raise"
    " max.incremental.fetch.session.cache.slots.",
)


def request_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield every family."""
    yield from _of_requests(snapshot.requests)
    yield from _of_topics(snapshot)
    yield from _of_fetches(snapshot.fetches)


def _of_requests(rows: RequestRows) -> Iterator[Metric]:
    yield REQUESTS.each((*which, count) for which, count in rows.by_version.items())
    yield ERRORS.each((*which, count) for which, count in rows.errors.items())
    yield _quantiles(rows)
    yield _histogram(rows)
    yield MALFORMED.one(rows.malformed)
    yield FAILED.one(rows.failed)
    yield REFUSED.one(rows.refused_batches)


def _quantiles(rows: RequestRows) -> Metric:
    metric = TIMES.empty()
    for row in rows.times:
        of = {"request": row.request}
        for quantile in _QUANTILES:
            found_us = quantile_us(row.recent, float(quantile))
            if found_us is not None:
                metric.add_sample(TIMES.name, of | {"quantile": quantile}, found_us / 1000)
        metric.add_sample(f"{TIMES.name}_count", of, sum(row.counts))
        metric.add_sample(f"{TIMES.name}_sum", of, row.total_us / 1000)
    return metric


def _histogram(rows: RequestRows) -> Metric:
    metric = SECONDS.empty()
    for row in rows.times:
        of = {"request": row.request}
        for bound, count in _buckets(row):
            metric.add_sample(f"{SECONDS.name}_bucket", of | {"le": bound}, count)
        metric.add_sample(f"{SECONDS.name}_count", of, sum(row.counts))
        metric.add_sample(f"{SECONDS.name}_sum", of, row.total_us / 1e6)
    return metric


def _buckets(row: TimesRow) -> Iterator[tuple[str, int]]:
    below = list(accumulate(row.counts))
    yield from ((f"{bound_us(bucket) / 1e6:g}", below[bucket]) for bucket in _BOUNDS)
    yield "+Inf", below[-1]


def _of_topics(snapshot: Snapshot) -> Iterator[Metric]:
    for attribute, family in TOPIC_COUNTERS.items():
        value = attrgetter(attribute)
        metric = family.each((name, value(one)) for name, one in snapshot.topics.items())
        metric.add_sample(family.name, {}, value(snapshot.all_topics))
        yield metric


def _of_fetches(rows: FetchRows) -> Iterator[Metric]:
    yield PARKED.each([("Fetch", rows.parked)])
    yield SESSIONS.one(rows.sessions)
    yield SESSION_PARTITIONS.one(rows.session_partitions)
    yield EVICTIONS.one(rows.session_evictions)
