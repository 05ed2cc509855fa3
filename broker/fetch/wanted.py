"""The partitions that a Fetch request names: by topic id since version 13, before by name."""

from __future__ import annotations

from odradek.broker.fetch.sessions import Key, WantedPartition
from odradek.broker.topics.registry import Topics
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.pacing import paced_if_many
from odradek.protocol.wire import ZERO_UUID


def wanted_partitions(
    topics: Topics, request: FetchRequest, by_id: bool
) -> dict[Key, WantedPartition]:
    """Return the partitions of a request; for a partition named twice the last one counts."""
    if not by_id:
        return {
            (topic.topic, one.partition): WantedPartition(topic.topic, ZERO_UUID, one)
            for topic in paced_if_many(request.topics)
            for one in paced_if_many(topic.partitions)
        }
    wanted: dict[Key, WantedPartition] = {}
    for topic in paced_if_many(request.topics):
        topic_id = topic.topic_id
        known = topics.by_id(topic_id)
        name = known.name if known is not None else None
        for one in paced_if_many(topic.partitions):
            wanted[topic_id, one.partition] = WantedPartition(name, topic_id, one)
    return wanted
