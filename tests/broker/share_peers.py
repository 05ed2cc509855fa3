"""Members of share groups as raw requests, sent to Odradek and to Kafka alike.

    peers = [ShareBroker(port) for port in (ours, theirs)]
    for peer in peers: peer.create("orders", 1)

What is compared has no ids in it: topics are told by their names, and times are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.legacy import read_stored_header
from odradek.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from odradek.protocol.messages.initialize_share_group_state import (
    PartitionData as InitialPartition,
)
from odradek.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from odradek.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStateData,
)
from odradek.protocol.messages.share_acknowledge import AcknowledgementBatch as AcknowledgedBatch
from odradek.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.wire import encode_uuid
from tests.broker.kafka_peer import Peer
from tests.support.asking import SHARE, await_coordinator, await_topic, create_topics
from tests.support.requests import altering, creatable, producing
from tests.support.waiting import wait_until

_GROUP = 32
Given = tuple[int, int, Sequence[int]]
"""First offset, last offset and types of an acknowledgement."""


@dataclass
class Member:
    """A member of a share group on a connection of its own."""

    peer: Peer
    group_id: str
    member_id: str
    epoch: int = 0
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)

    def fetch(
        self,
        *partitions: tuple[str, int],
        given: Mapping[tuple[str, int], Sequence[Given]] | None = None,
        forget: Sequence[tuple[str, int]] = (),
        epoch: int | None = None,
        version: int = 2,
        **options: Any,
    ) -> dict[str, Any]:
        """Send a ShareFetch, and return what is comparable of its answer."""
        given = given or {}
        named: dict[str, list[FetchPartition]] = {}
        for name, number in dict.fromkeys([*partitions, *given]):
            batches = [
                AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(c))
                for a, b, c in given.get((name, number), ())
            ]
            named.setdefault(name, []).append(
                FetchPartition(partition_index=number, acknowledgement_batches=batches)
            )
        wanted = {
            "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 2**20, "max_records": 500,
            "batch_size": 500, **options,
        }  # fmt: skip
        epoch = self.epoch if epoch is None else epoch
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=[FetchTopic(topic_id=self._id(n), partitions=p) for n, p in named.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=self._id(name), partitions=[number])
                for name, number in forget
            ],
            **wanted,
        )
        answer = self.peer.ask(request, version)
        self._count(epoch, answer.error_code)
        return self._told_fetch(answer)

    def acknowledge(
        self,
        given: Mapping[tuple[str, int], Sequence[Given]],
        *,
        epoch: int | None = None,
        version: int = 2,
        is_renew_ack: bool = False,
    ) -> dict[str, Any]:
        """Send a ShareAcknowledge, and return what is comparable of its answer."""
        named: dict[str, list[AcknowledgePartition]] = {}
        for (name, number), batches in given.items():
            named.setdefault(name, []).append(
                AcknowledgePartition(
                    partition_index=number,
                    acknowledgement_batches=[
                        AcknowledgedBatch(first_offset=a, last_offset=b, acknowledge_types=list(c))
                        for a, b, c in batches
                    ],
                )
            )
        epoch = self.epoch if epoch is None else epoch
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=is_renew_ack,
            topics=[
                AcknowledgeTopic(topic_id=self._id(name), partitions=partitions)
                for name, partitions in named.items()
            ],
        )
        answer = self.peer.ask(request, version)
        self._count(epoch, answer.error_code)
        names = {self._id(name): name for name in self.topic_ids}
        return {
            "error": answer.error_code,
            "lock_ms": answer.acquisition_lock_timeout_ms,
            "partitions": {
                (names[topic.topic_id], one.partition_index): (
                    one.error_code, one.error_message
                )
                for topic in answer.responses
                for one in topic.partitions
            },
        }  # fmt: skip

    def _count(self, epoch: int, error: int) -> None:
        if error == 0:
            self.epoch = 0 if epoch == -1 else epoch + 1

    def _id(self, name: str) -> bytes:
        return self.topic_ids.get(name, name.encode().ljust(16)[:16])

    def _told_fetch(self, answer: Any) -> dict[str, Any]:
        names = {self._id(name): name for name in self.topic_ids}
        partitions = {}
        for topic in answer.responses:
            for one in topic.partitions:
                partitions[names.get(topic.topic_id, topic.topic_id), one.partition_index] = {
                    "error": one.error_code,
                    "acknowledged": (one.acknowledge_error_code, one.acknowledge_error_message),
                    "acquired": [
                        (a.first_offset, a.last_offset, a.delivery_count)
                        for a in one.acquired_records
                    ],
                    "batches": spans(bytes(one.records)),
                }
        return {
            "error": answer.error_code,
            "lock_ms": answer.acquisition_lock_timeout_ms,
            "partitions": partitions,
        }


class ShareBroker:
    """A broker that members of share groups speak to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peer = Peer(port)
        self.topic_ids: dict[str, bytes] = {}
        self._members: list[Peer] = []
        self._threads = ThreadPoolExecutor()

    def later(self, act: Callable[[], Any]) -> Future[Any]:
        """Do something in a thread."""
        return self._threads.submit(act)

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown()
        for peer in (self.peer, *self._members):
            peer.__exit__(None, None, None)

    def create(self, name: str, partition_count: int = 1, **configs: str) -> None:
        """Create a topic, and wait until it is there."""
        topic = creatable(name, partition_count, configs=configs)
        self.topic_ids |= create_topics(self.peer, topic)
        await_topic(self.peer, name)

    def set_group(self, group_id: str, **configs: str) -> None:
        """Set a group's own settings; `__` stands for a dot."""
        settings = {name.replace("__", "."): value for name, value in configs.items()}
        (done,) = self.peer.ask(altering(group_id, settings, _GROUP), 1).responses
        assert done.error_code == 0, done

    def set_feature(self, name: str, level: int, *, is_upgrade: bool) -> None:
        """Set the level of a feature."""
        update = FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=1 if is_upgrade else 2
        )
        answer = self.peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert answer.error_code == 0, answer

    def initialize(self, group_id: str, name: str, partition: int = 0, start: int = 0) -> None:
        """Begin the state of a share-partition, as the group's coordinator would."""
        key = f"{group_id}:{encode_uuid(self.topic_ids[name])}:{partition}"
        await_coordinator(self.peer, SHARE, key)
        request = InitializeShareGroupStateRequest(
            group_id=group_id,
            topics=[
                InitializeStateData(
                    topic_id=self.topic_ids[name],
                    partitions=[
                        InitialPartition(partition=partition, state_epoch=1, start_offset=start)
                    ],
                )
            ],
        )

        def is_done() -> bool:
            (topic,) = self.peer.ask(request, 0).results
            return bool(topic.partitions[0].error_code == 0)

        wait_until(is_done)

    def state(self, group_id: str, name: str, partition: int = 0) -> tuple[Any, ...]:
        """Return what is stored of a share-partition."""
        request = ReadShareGroupStateRequest(
            group_id=group_id,
            topics=[
                ReadStateData(
                    topic_id=self.topic_ids[name],
                    partitions=[ReadPartition(partition=partition, leader_epoch=-1)],
                )
            ],
        )
        (topic,) = self.peer.ask(request, 0).results
        (one,) = topic.partitions
        batches = [
            (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in one.state_batches
        ]
        return one.error_code, one.error_message, one.state_epoch, one.start_offset, batches

    def produce(
        self, name: str, count: int, partition: int = 0, data: bytes | None = None
    ) -> None:
        """Append one batch of so many records, or the bytes of one."""
        if data is None:
            now_ms = int(time.time() * 1_000)
            data = bytes(encode_batch([Record(at, now_ms, None, b"v") for at in range(count)]))
        (topic,) = self.peer.ask(producing(name, data, partition=partition), 9).responses
        assert topic.partition_responses[0].error_code == 0, topic

    def member(self, group_id: str, member_id: str) -> Member:
        """Begin to speak as a member, on a connection of its own."""
        peer = Peer(self.port)
        self._members.append(peer)
        return Member(peer, group_id, member_id, topic_ids=self.topic_ids)


def spans(data: bytes) -> list[tuple[int, int]]:
    """Return base and last offset of each whole batch."""
    found, position = [], 0
    while position + 17 <= len(data):
        header = read_stored_header(data, position)
        if position + header.size_bytes > len(data):
            break
        found.append((header.base_offset, header.last_offset))
        position += header.size_bytes
    return found


def values(data: bytes) -> list[bytes | None]:
    """Return the values of the records of the first batch."""
    return [record.value for record in decode_records(data)]
