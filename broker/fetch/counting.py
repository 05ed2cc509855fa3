"""The counters of a fetch, by topic: Kafka's BrokerTopicMetrics.

Kafka counts unexpected errors as failures; broker/counters/topics.py says which those are.
"""

from __future__ import annotations

from odradek.broker.counters.metrics import Metrics
from odradek.broker.fetch.plans import Plan, Planned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import FETCH_KEY

# ReplicaManager.readFromLog.
_EXPECTED_OF_FETCH = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


def count_fetch(metrics: Metrics, plan: Plan) -> None:
    """Count the answer of a fetch; a session's partitions without news are left out."""
    everything = metrics.all_topics
    everything.fetches += len(plan.read)
    for planned in plan.read:
        if planned.data.error_code:
            _count_fetch_error(metrics, planned)
            continue
        log = planned.log
        assert log is not None
        size_bytes = 0 if planned.slice is None else planned.slice.size
        everything.bytes_out += size_bytes
        if not log.is_deleted:  # otherwise its topic is gone, and must not be counted again
            counts = metrics.topics[log.topic]
            counts.fetches += 1
            counts.bytes_out += size_bytes
    for planned in plan.unknown:
        metrics.count_error(FETCH_KEY, planned.data.error_code)


def _count_fetch_error(metrics: Metrics, planned: Planned) -> None:
    code = planned.data.error_code
    metrics.count_error(FETCH_KEY, code)
    # The topic may be gone by now, and must not be counted again.
    counts = metrics.topics.get(planned.wanted.topic or "")
    for one in (metrics.all_topics, *([counts] if counts else ())):
        one.failed_fetches += code not in _EXPECTED_OF_FETCH
    if counts is not None:
        counts.fetches += 1
