"""Consumers read shared partitions from a broker of their rack (KIP-392).

    leader    names a broker of the consumer's rack, unless its own rack is that one
    other     serves the consumer from a replica of its own, if it can

Kafka asks for replica.selector.class; here the consumer decides by client.rack, and brokers by
broker.rack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from odradek.broker.errors import code_of
from odradek.broker.fetch.reading import Reading
from odradek.broker.fetch.sessions import WantedPartition
from odradek.broker.fetch.wanted import find_topic
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import Brokers
from odradek.broker.topics.disks import Disks
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.states import RemotePartition, Wanted
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.shared.replicas import ReadReplicas


Missing = dict[Partition, tuple[Wanted, int]]
"""Partitions whose logs are not open here, or end before an offset that their reader wants."""


class ClosestServices(Protocol):
    """The parts of a broker that are needed here."""

    topics: Topics
    disks: Disks
    brokers: Brokers

    @property
    def replicas(self) -> ReadReplicas | None:
        """The logs of other leaders, None where no topic is in a bucket."""


def closest_to(
    services: ClosestServices, reading: Reading, topic: Topic, log: Log, offset: int
) -> int:
    """Return the broker from which a consumer of a rack is to read; -1 for this one."""
    replicas, brokers = services.replicas, services.brokers
    if replicas is None or not log.is_shared or not log.log_start_offset <= offset:
        return -1
    found = brokers.closest(log.name, reading.rack)
    if found is None or brokers.own.rack == reading.rack:
        return -1
    consumer = reading.client_id, reading.rack, topic.name, log.partition
    return found if replicas.referrals.note(consumer) else -1


def find_replica(
    services: ClosestServices, reading: Reading, topic: Topic, partition: RemotePartition
) -> Log | None:
    """Return the log in which a consumer of a rack can read a partition of another leader."""
    if not reading.rack or services.replicas is None or not partition.is_shared:
        return None
    return services.replicas.find((topic.topic_id, partition.partition), partition.leader)


def missing_replicas(
    services: ClosestServices, reading: Reading, wanted: Iterable[WantedPartition]
) -> Missing:
    """Return the partitions that are to be prepared, and the offsets that their reader wants."""
    found: Missing = {}
    for one in wanted:
        topic = find_topic(services.topics, one)
        number, offset = one.request.partition, one.request.fetch_offset
        if topic is None or one.topic in reading.denied or not 0 <= number < len(topic.partitions):
            continue
        partition = topic.partitions[number]
        if not isinstance(partition, RemotePartition) or not partition.is_shared:
            continue
        log = find_replica(services, reading, topic, partition)
        if log is None or offset > log.log_end_offset:
            wanted_log = Wanted(topic.record, number, topic.config, is_made=True)
            found[topic.topic_id, number] = wanted_log, offset
    return found


def note_failure(services: ClosestServices, log: Log, error: StorageError) -> bool:
    """Note an error of a read; return whether the log is a replica."""
    if services.replicas is None or not services.replicas.owns(log):
        services.disks.note(log, error)
        return False
    if code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR:
        services.replicas.retire(log, str(error))
    return True
