"""Counts of the work of producers and consumers, by topic: Kafka's BrokerTopicMetrics.

Kafka counts only unexpected errors as failures. An error that makes a client look for the topic
elsewhere, or send less, or that reports a disk failure, is none; it is counted by its code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import PRODUCE_KEY

if TYPE_CHECKING:
    from odradek.broker.counters.metrics import Metrics

# ReplicaManager.appendRecordsToLeader.
_EXPECTED_OF_PRODUCE = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


class TopicCounts:
    """The counts of a topic, or of all topics; the event loop owns them."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
    )

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.records_in = 0
        # A request counts once for each partition in it, as in Kafka.
        self.produces = self.fetches = self.failed_produces = self.failed_fetches = 0


def count_append(metrics: Metrics, topic: str, size_bytes: int, record_count: int) -> None:
    """Count a batch that was appended."""
    for counts in (metrics.all_topics, metrics.topics[topic]):
        counts.produces += 1
        counts.bytes_in += size_bytes
        counts.records_in += record_count


def count_refusal(metrics: Metrics, topic: str | None, code: int) -> None:
    """Count a batch that was refused, also for its topic, if it exists."""
    metrics.count_error(PRODUCE_KEY, code)
    is_failure = code not in _EXPECTED_OF_PRODUCE
    for counts in (metrics.all_topics, *([metrics.topics[topic]] if topic else ())):
        counts.produces += 1
        counts.failed_produces += is_failure


def count_share_fetch(metrics: Metrics, topic: str | None, size_bytes: int) -> None:
    """Count the bytes that a share group has fetched from a partition."""
    metrics.all_topics.bytes_out += size_bytes
    if topic is not None:  # None if the topic is gone by now
        metrics.topics[topic].bytes_out += size_bytes
