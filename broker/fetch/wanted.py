"""The partitions that a Fetch request names: by topic id since version 13, before by name."""

from __future__ import annotations

from odradek.broker.fetch.sessions import Key, WantedPartition
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
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


def find_topic(topics: Topics, wanted: WantedPartition) -> Topic | None:
    """Find a topic by its name. An id gets its topic's name when first found, and keeps it."""
    if wanted.topic is None:
        topic = topics.by_id(wanted.topic_id)
        if topic is not None:
            wanted.topic = topic.name
        return topic
    return topics.get(wanted.topic)
