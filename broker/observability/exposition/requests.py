"""Requests of clients: their numbers, times and errors, and the traffic of each topic."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.counters.latency import quantile_us
from odradek.broker.observability.exposition.families import counter, gauge, histogram, summary
from odradek.broker.observability.exposition.times import as_histogram

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.snapshot import FetchRows, RequestRows, Snapshot

# Kafka's percentiles, as the JMX exporter writes them.
_QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

REQUESTS = counter(
    "kafka_network_requestmetrics_requests_total",
    "Requests by API and version. An old version reveals a client that needs an upgrade.",
    "request",
    "version",
)
ERRORS = counter(
    "kafka_network_requestmetrics_errors_total",
    "Answers with an error code, by API: for Produce and Fetch each partition with one, for other"
    " APIs the error code of the whole answer. Answers without an error (NONE in Kafka) are not"
    " counted. NOT_COORDINATOR, REBALANCE_IN_PROGRESS and similar errors are normal; for others,"
    " see the client's log.",
    "request",
    "error",
)
TIMES = summary(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from the turn of a request, with all its bytes read, until its answer is in the"
    " socket's buffer; quantiles of the last five minutes. Fetch includes the wait for records"
    " (fetch.max.wait.ms). When it rises for all APIs, compare CPU and disk.",
    "request",
)
SECONDS = histogram(
    "odradek_request_seconds",
    "Seconds that requests took, measured as kafka_network_requestmetrics_totaltimems, as a"
    " histogram since the start: use histogram_quantile() for any range of time.",
    "request",
)
MALFORMED = counter(
    "odradek_malformed_requests_total",
    "Connections closed for bytes that are not a request: look in the log for the peer.",
)
FAILED = counter(
    "odradek_failed_requests_total",
    "Requests that hit a bug in the broker: report the trace in the log.",
)
REFUSED = counter(
    "odradek_refused_batches_total",
    "Record batches that a log refused: the producer's error says what to change.",
)
_OF_ALL = " Without a topic label, it is for all topics: never sum over both."
TOPIC_COUNTERS = {
    attribute: counter(
        f"kafka_server_brokertopicmetrics_{name}_total", f"{text}{_OF_ALL}", "topic"
    )
    for attribute, name, text in (
        ("records_in", "messagesin", "Records appended; silence may mean a producer is stuck."),
        ("bytes_in", "bytesin", "Bytes of record batches appended, as stored."),
        ("bytes_out", "bytesout", "Bytes of record batches sent to consumers."),
        (
            "produces",
            "totalproducerequests",
            "Batches that producers have sent. When batches have few records, raise the producer's"
            " linger.ms.",
        ),
        (
            "fetches",
            "totalfetchrequests",
            "Partitions in answers to fetches; partitions of a session without news are not"
            " counted.",
        ),
        (
            "failed_produces",
            "failedproducerequests",
            "Batches refused because a producer should not send them (order, timestamps, format):"
            " its log and the errors by code have the error.",
        ),
        (
            "failed_fetches",
            "failedfetchrequests",
            "Fetches that failed for a reason that is not the client's: look in the log for"
            " damage.",
        ),
    )
}
PARKED = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Fetches that wait for records; each idle consumer has one.",
    "delayedOperation",
)
SESSIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Fetch sessions that are remembered; max.incremental.fetch.session.cache.slots bounds them.",
)
SESSION_PARTITIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "Partitions of all fetch sessions; their memory grows with this number.",
)
EVICTIONS = counter(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "Fetch sessions that were removed to make room; their clients have to send every partition"
    " again: raise max.incremental.fetch.session.cache.slots.",
)


def request_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Iterate over the families."""
    yield from _of_requests(snapshot.requests)
    yield from _of_topics(snapshot)
    yield from _of_fetches(snapshot.fetches)


def _of_requests(rows: RequestRows) -> Iterator[Metric]:
    yield REQUESTS.each((*which, count) for which, count in rows.by_version.items())
    yield ERRORS.each((*which, count) for which, count in rows.errors.items())
    yield _quantiles(rows)
    yield as_histogram(SECONDS, ((row.request, row.counts, row.total_us) for row in rows.times))
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
