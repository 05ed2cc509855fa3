"""Partitions, their logs, and their disks."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import counter, gauge

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.snapshot import DiskRows, Snapshot

LOG_GAUGES = {
    attribute: gauge(f"kafka_log_log_{name}", text, "topic", "partition")
    for attribute, name, text in (
        (
            "size_bytes",
            "size",
            "Bytes of a partition's segments. When a compacted partition only grows, see"
            " `odradek cleaner why`.",
        ),
        ("start_offset", "logstartoffset", "First offset that can be read."),
        ("end_offset", "logendoffset", "Offset of the next record."),
        (
            "segment_count",
            "numlogsegments",
            "Segments of a partition, each with open files and indexes: when there are thousands,"
            " raise segment.bytes or segment.ms.",
        ),
    )
}
TOPICS = gauge(
    "kafka_controller_kafkacontroller_globaltopiccount", "Topics, the internal ones included."
)
PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount",
    "Partitions of all brokers, offline ones included.",
)
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions that cannot be read or written: a disk refuses them, or the broker with their"
    " files is away. See /health and /api/cluster.",
)
REPLICAS = gauge(
    "kafka_server_replicamanager_partitioncount",
    "Partitions of this broker, offline ones included; with one node, all partitions.",
)
LEADERS = gauge(
    "kafka_server_replicamanager_leadercount",
    "Partitions that this broker leads; with one node, all that are not offline.",
)
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions",
    "Partitions that this broker leads, and that are to move to another one: `odradek cluster"
    " moves` shows how far their copies are.",
)
UNDER_REPLICATED = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "0: there is one replica of each partition. acks=all means on the disk.",
)
OFFLINE_REPLICAS = gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "Partitions that cannot be used because of a disk: /health names them and the cause.",
)
OFFLINE_DIRECTORIES = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "Log directories that cannot be used: /health names them and the cause; they are tried again"
    " every 30 seconds at most.",
)
DIRECTORY_OFFLINE = gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 for a log directory that cannot be used: mount it again or replace the disk.",
    "logDirectory",
)
FREE_BYTES = gauge(
    "odradek_disk_free_bytes",
    "Free bytes of a log directory's volume. Before it is 0, lower retention, clean (`odradek"
    " cleaner plan` says how much that reclaims), or enlarge the volume.",
    "directory",
)
SIZE_BYTES = gauge(
    "odradek_disk_size_bytes",
    "Size of a log directory's volume: enlarge it when too little is free. All directories of one"
    " volume show the same size.",
    "directory",
)
FAILURES = counter(
    "odradek_disk_failures_total",
    "Operations that a log directory's disk has refused, and damage found on it: look in the log,"
    " and check the disk.",
    "directory",
)
FLUSHES = counter(
    "odradek_flushes_total",
    "Flushes to the disk; many appends share one. With acks=all, each request waits for one.",
)


def storage_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Iterate over the families."""
    for attribute, family in LOG_GAUGES.items():
        value = attrgetter(attribute)
        yield family.each((row.topic, row.partition, value(row)) for row in snapshot.logs)
    online, offline = len(snapshot.logs), snapshot.offline_partition_count
    cluster = snapshot.cluster
    yield TOPICS.one(snapshot.topic_count)
    yield PARTITIONS.one(cluster.partition_count)
    yield OFFLINE_PARTITIONS.one(cluster.leaderless_count + offline)
    yield REPLICAS.one(online + offline)
    yield LEADERS.one(cluster.leader_count)
    yield REASSIGNING.one(cluster.moving_count)
    yield UNDER_REPLICATED.one(0)
    yield OFFLINE_REPLICAS.one(offline)
    yield from _of_disks(snapshot.disks)


def _of_disks(rows: DiskRows) -> Iterator[Metric]:
    yield OFFLINE_DIRECTORIES.one(sum(rows.offline.values()))
    yield DIRECTORY_OFFLINE.each((path, int(is_off)) for path, is_off in rows.offline.items())
    yield FREE_BYTES.each((one.directory, one.free_bytes) for one in rows.spaces)
    yield SIZE_BYTES.each((one.directory, one.total_bytes) for one in rows.spaces)
    yield FAILURES.each(
        (path, rows.failures.get(path, 0)) for path in {**rows.offline, **rows.failures}
    )
    yield FLUSHES.one(rows.flushes)
