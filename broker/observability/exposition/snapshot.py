"""The values for /metrics at one moment; the event loop takes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from odradek.broker.api_table import BY_KEY
from odradek.broker.counters.latency import Counts
from odradek.broker.counters.topics import TopicCounts
from odradek.broker.observability.exposition.authorization import AuthorizationRow
from odradek.broker.observability.exposition.cluster_rows import ClusterRow, read_cluster
from odradek.broker.observability.exposition.group_rows import GroupRows, read_groups
from odradek.broker.observability.exposition.quota_rows import QuotaRows, read_quotas
from odradek.broker.telemetry.clients import ClientRow
from odradek.cleaner.runtime.history import Totals
from odradek.cleaner.runtime.pool import CleanerPool, PoolStatus
from odradek.cleaner.runtime.progress import IoBytes
from odradek.cleaner.runtime.runs import Run
from odradek.cleaner.runtime.survey import Noted
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.observability.observed import Observed
    from odradek.broker.shared.facts import SharedFacts
    from odradek.storage.directory import LogDirectory

# The logs that are read in one turn of the event loop.
_LOGS_AT_ONCE = 100
_ERRORS: Mapping[int, str] = {int(one): one.name for one in ErrorCode}


@dataclass(frozen=True, slots=True)
class TimesRow:
    """The times of an API's requests, in the buckets of broker/counters/latency.py."""

    request: str
    counts: Counts
    recent: Counts
    total_us: int


@dataclass(frozen=True, slots=True)
class RequestRows:
    """The values of requests."""

    by_version: Mapping[tuple[str, int], int]
    errors: Mapping[tuple[str, str], int]  # by API and error
    times: Sequence[TimesRow]
    malformed: int
    failed: int
    refused_batches: int


@dataclass(frozen=True, slots=True)
class LogRow:
    """The values of a partition."""

    topic: str
    partition: int
    size_bytes: int
    start_offset: int
    end_offset: int
    segment_count: int


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """The volume of a log directory."""

    directory: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DiskRows:
    """The values of log directories."""

    spaces: Sequence[SpaceRow]
    offline: Mapping[str, bool]  # by log directory
    failures: Mapping[str, int]
    flushes: int


@dataclass(frozen=True, slots=True)
class CleanerRow:
    """The facts of a compacted partition's cleaning, from which its values are computed."""

    noted: Noted
    last: Run | None  # the last successful run
    totals: Totals


@dataclass(frozen=True, slots=True)
class CleanerRows:
    """The values of the cleaner."""

    status: PoolStatus
    io: IoBytes
    logs: Sequence[CleanerRow]


@dataclass(frozen=True, slots=True)
class FetchRows:
    """The values of delayed fetches and of fetch sessions."""

    parked: int
    sessions: int
    session_partitions: int
    session_evictions: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values."""

    now_ms: int
    requests: RequestRows
    all_topics: TopicCounts
    topics: Mapping[str, TopicCounts]
    connections: Mapping[str, int]  # by listener
    logins: Mapping[str, Mapping[str, int]]  # by listener, and by outcome
    certificates: Mapping[str, float]  # the end of their validity, by listener
    authorizations: AuthorizationRow | None
    fetches: FetchRows
    logs: Sequence[LogRow]
    topic_count: int
    offline_partition_count: int
    cluster: ClusterRow
    disks: DiskRows
    cleaner: CleanerRows
    groups: GroupRows
    transactions: Mapping[str, int]  # by state
    problem_count: int
    clients: Sequence[ClientRow]
    dropped_client_series: int
    quotas: QuotaRows
    otlp_pushes: int = 0
    otlp_failures: int = 0
    shared: SharedFacts | None = None  # None without an object store


async def take_snapshot(broker: Observed) -> Snapshot:
    """Take a snapshot; the event loop does other work in between."""
    logs, cleaner_logs = await _log_rows(broker)
    groups = await read_groups(broker)
    offline_count = len(broker.topics.offline())
    cluster = await read_cluster(broker, len(logs), offline_count)
    disks = await _disks(broker)
    listeners = dict.fromkeys((one.name for one in broker.server.listeners), 0)
    open_now = Counter(one.listener.name for one in broker.server.connections)
    return Snapshot(
        now_ms=broker.clock.now_ms(),
        requests=_requests(broker),
        all_topics=copy(broker.metrics.all_topics),
        topics={name: copy(counts) for name, counts in broker.metrics.topics.items()},
        connections=listeners | open_now,
        logins=_logins(broker),
        certificates=_certificates(broker),
        authorizations=_authorizations(broker),
        fetches=FetchRows(
            len(broker.purgatory),
            len(broker.sessions),
            broker.sessions.partition_count,
            broker.sessions.evictions,
        ),
        logs=logs,
        topic_count=len(broker.topics),
        offline_partition_count=offline_count,
        cluster=cluster,
        disks=disks,
        cleaner=CleanerRows(
            broker.cleaner.status(), broker.cleaner.scheduler.progress.io_bytes(), cleaner_logs
        ),
        groups=groups,
        transactions=broker.transactions.count_by_state(),
        problem_count=len(broker.problems()),
        clients=broker.telemetry.rows(),
        dropped_client_series=broker.telemetry.dropped_series,
        quotas=read_quotas(broker),
        otlp_pushes=broker.metrics.otlp_pushes,
        otlp_failures=broker.metrics.otlp_failures,
        shared=None if broker.sharing is None else broker.sharing.facts(),
    )


def _certificates(broker: Observed) -> Mapping[str, float]:
    tls = broker.security.tls
    listeners = {} if tls is None else tls.listeners
    return {name: one.ends_ms / 1000 for name, one in listeners.items()}


def _logins(broker: Observed) -> Mapping[str, Mapping[str, int]]:
    """Return the counts of logins; each listener that authenticates has counts from the start."""
    found: dict[str, dict[str, int]] = {
        one.name: {} for one in broker.server.listeners if one.protocol != "PLAINTEXT"
    }
    for (listener, what), count in broker.metrics.authentications.items():
        found.setdefault(listener, {})[what] = count
    return found


def _authorizations(broker: Observed) -> AuthorizationRow | None:
    acls = broker.security.acls
    if acls is None:
        return None
    return AuthorizationRow(copy(broker.metrics.authorizations), len(acls.authorizer.acls))


def _requests(broker: Observed) -> RequestRows:
    metrics = broker.metrics
    return RequestRows(
        by_version={
            (BY_KEY[key].name, version): count
            for (key, version), count in metrics.requests.items()
        },
        errors={
            (BY_KEY[key].name, _ERRORS.get(code, str(code))): count
            for (key, code), count in metrics.errors.items()
        },
        times=[
            TimesRow(BY_KEY[key].name, one.counts.copy(), one.recent(), one.total_us)
            for key, one in metrics.times.items()
        ],
        malformed=metrics.malformed_requests,
        failed=metrics.failed_requests,
        refused_batches=metrics.refused_batches,
    )


async def _log_rows(broker: Observed) -> tuple[list[LogRow], list[CleanerRow]]:
    rows: list[LogRow] = []
    cleaner_rows: list[CleanerRow] = []
    for at, log in enumerate(list(broker.logs())):
        if at % _LOGS_AT_ONCE == _LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        if log.is_closed:
            continue
        rows.append(_log_row(log))
        if log.config.compact:
            cleaner_rows.append(_cleaner_row(broker.cleaner, log))
    return rows, cleaner_rows


async def _disks(broker: Observed) -> DiskRows:
    directories = list(broker.directories)
    offline = [str(path) for path in broker.partitions.offline_directories]
    return DiskRows(
        spaces=await asyncio.to_thread(_spaces, directories),
        offline={
            **{str(one.path): False for one in directories},
            **dict.fromkeys(offline, True),
        },
        failures={str(path): count for path, count in broker.disks.failures.items()},
        flushes=broker.group_commit.flushes,
    )


def _spaces(directories: Sequence[LogDirectory]) -> list[SpaceRow]:
    """Read how full the volumes are, except those that fail: they will be offline soon."""
    rows = []
    for one in directories:
        try:
            rows.append(SpaceRow(str(one.path), *one.space()))
        except StorageError:
            continue
    return rows


def _log_row(log: Log) -> LogRow:
    return LogRow(
        log.topic,
        log.partition,
        log.size_bytes,
        log.log_start_offset,
        log.log_end_offset,
        len(log.segments),
    )


def _cleaner_row(cleaner: CleanerPool, log: Log) -> CleanerRow:
    runs = cleaner.scheduler.runs
    return CleanerRow(cleaner.note(log), runs.last_good(log), copy(runs.totals(log)))
