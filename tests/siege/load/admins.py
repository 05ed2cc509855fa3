"""Administrators of a siege: they move partitions, alter settings, create and delete topics.

The history does not have what they do: the promises to the other clients hold all the same. The
steps that are refused are tried again by later ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.kafka_peer import Peer
from tests.histories.history import Place
from tests.siege.load.client import Client

_EACH_S = 2.0
_TIMEOUT_S = 15.0
_BRIEF_MAX = 3
# Of all steps: a local topic stays one for a minute or two.
_SHARED_SHARE = 0.02
_PARTITIONS_MAX = 20
_SEGMENT_BYTES = ("10000", "30000", "100000")
_POLICIES = ("compact", "compact,delete", "delete")


def delete_records(client: Client) -> None:
    """Delete some of the first records of a partition now and then, until it is over."""
    admin = AdminClient(client.settings())
    consumer = Consumer(client.settings(group_id=client.name))
    while not client.is_over(_EACH_S * client.source.random()):
        place = client.source.choice(client.places)
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(*place), _TIMEOUT_S)
        except KafkaException:
            continue
        _delete_before(client, admin, place, first + client.source.randint(0, (end - first) // 2))
    consumer.close()


def _delete_before(client: Client, admin: AdminClient, place: Place, offset: int) -> None:
    topic, number = place
    begun = client.begin("delete_records", topic=topic, partition=number, offset=offset)
    (asked,) = admin.delete_records(
        [TopicPartition(*place, offset)], request_timeout=_TIMEOUT_S
    ).values()
    with contextlib.suppress(KafkaException, TimeoutError):
        client.end(begun, log_start=asked.result(_TIMEOUT_S).low_watermark)


class Administrator:
    """Changes what there is, but for the topics' contents."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = AdminClient(client.settings())
        self._count = 0

    def run(self) -> None:
        """Change something now and then, until it is over."""
        client = self._client
        steps: list[Callable[[], None]] = [
            self._move, self._move, self._alter_size, self._alter_policy, self._create, self._grow,
        ]  # fmt: skip
        while not client.is_over(_EACH_S * client.source.random()):
            with contextlib.suppress(KafkaException, OSError, TimeoutError):
                if client.source.random() < _SHARED_SHARE:
                    self._share()
                client.source.choice(steps)()

    def _move(self) -> None:
        """Let another broker lead a partition."""
        client, brokers = self._client, self._admin.list_topics(timeout=_TIMEOUT_S).brokers
        topic, number = client.source.choice(client.places)
        homes = client.homes.get(topic, sorted(brokers))
        wanted = ReassignablePartition(
            partition_index=number, replicas=[client.source.choice(homes)]
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        asked = brokers[client.source.choice(sorted(brokers))]
        with Peer(asked.port) as peer:
            peer.socket.settimeout(_TIMEOUT_S)
            peer.ask(request, 1)

    def _alter_size(self) -> None:
        """Alter the size of a topic's segments."""
        topic, _ = self._client.source.choice(self._client.places)
        size = self._client.source.choice(_SEGMENT_BYTES)
        self._set(topic, "internal.segment.bytes", size)

    def _alter_policy(self) -> None:
        """Alter the policy of a topic that says so by its name."""
        mixed = sorted({topic for topic, _ in self._client.places if "mixed" in topic})
        if mixed:
            policy = self._client.source.choice(_POLICIES)
            self._set(self._client.source.choice(mixed), "cleanup.policy", policy)

    def _share(self) -> None:
        """Bring a local topic to the bucket, for good: any broker may lead it from then on."""
        if self._client.homes:
            topic = self._client.source.choice(sorted(self._client.homes))
            self._set(topic, "odradek.storage", "object")

    def _set(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._wait(self._admin.incremental_alter_configs([resource]))

    def _create(self) -> None:
        """Create a topic, and delete an earlier one."""
        self._count += 1
        self._wait(self._admin.create_topics([NewTopic(f"brief-{self._count}", 2, 1)]))
        if self._count > _BRIEF_MAX:
            self._wait(self._admin.delete_topics([f"brief-{self._count - _BRIEF_MAX}"]))

    def _grow(self) -> None:
        """Add a partition to a topic."""
        topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        brief = sorted(name for name in topics if name.startswith("brief-"))
        if brief:
            name = self._client.source.choice(brief)
            count = min(len(topics[name].partitions) + 1, _PARTITIONS_MAX)
            self._wait(self._admin.create_partitions([NewPartitions(name, count)]))

    @staticmethod
    def _wait(asked: dict[object, object]) -> None:
        for future in asked.values():
            future.result(_TIMEOUT_S)  # type: ignore[attr-defined]
