"""Brokers that have stopped: what clients see of them, and how they are forgotten."""

from __future__ import annotations

import itertools
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import registrations
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.composition import Broker
from odradek.broker.metadata.features import FeatureUpdate
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.metadata.store import Metadata
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import client, on_uvloop, until
from tests.broker.test_catalog import LEASE_MS
from tests.broker.test_catalog import member as a_member
from tests.broker.test_cluster import create_at, member

PREFERRED, UNCLEAN = 0, 1
NEEDLESS = ErrorCode.ELECTION_NOT_NEEDED


async def ask(broker: Broker, request: Any, version: int) -> Any:
    async with client(broker) as one:
        return await one.ask(request, version=version)


async def described(broker: Broker) -> dict[int, bool]:
    """Return the brokers that one describes, and whether each is fenced."""
    asked = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=True
    )
    answer = await ask(broker, asked, 2)
    assert all(one.host == "127.0.0.1" and one.port for one in answer.brokers)
    return {one.broker_id: one.is_fenced for one in answer.brokers}


async def unregistered(broker: Broker, node_id: int) -> ErrorCode:
    answer = await ask(broker, UnregisterBrokerRequest(broker_id=node_id), 0)
    return ErrorCode(answer.error_code)


async def elected(broker: Broker, kind: int, number: int | None) -> dict[int, ErrorCode]:
    """Return the outcome of an election for a partition of the topic, or for all partitions."""
    wanted = None if number is None else [TopicPartitions(topic="t", partitions=[number])]
    asked = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    answer = await ask(broker, asked, 2)
    return {
        one.partition_id: ErrorCode(one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


@on_uvloop
async def test_a_stopped_broker_is_fenced_until_it_is_back_or_unregistered(
    tmp_path: Path, catalog_url: str
) -> None:
    async with (
        member(tmp_path, catalog_url, 1) as one,
        member(tmp_path, catalog_url, 3) as three,
    ):
        async with member(tmp_path, catalog_url, 2) as two:
            await until(lambda: len(one.brokers) == len(three.brokers) == 3)
            await create_at(one, [two, three], "t", 3)
            for broker in (one, two, three):
                assert await described(broker) == {1: False, 2: False, 3: False}
                assert await unregistered(broker, 2) == ErrorCode.INVALID_REQUEST
        await until(lambda: len(one.brokers) == len(three.brokers) == 2)
        for broker in (one, three):
            assert await described(broker) == {1: False, 2: True, 3: False}
        assert await unregistered(three, 7) == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert await unregistered(three, 2) == ErrorCode.NONE
        await until(lambda: not one.brokers.absent)
        for broker in (one, three):
            assert await described(broker) == {1: False, 3: False}
            assert await unregistered(broker, 2) == ErrorCode.BROKER_ID_NOT_REGISTERED
        # Its partitions wait for it, as in Kafka.
        lost = one.topics.get("t").record.leaders  # type: ignore[union-attr]
        assert [leader.node_id for leader in lost].count(NO_LEADER) == 1
        async with member(tmp_path, catalog_url, 2):
            await until(lambda: len(one.brokers) == len(three.brokers) == 3)

            def leading() -> set[int]:
                led = one.topics.get("t").record.leaders  # type: ignore[union-attr]
                return {leader.node_id for leader in led}

            # A broker joins first, and then leads its partitions again.
            await until(lambda: leading() == {1, 2, 3})
        await until(lambda: len(one.brokers) == 2)
        assert await described(one) == {1: False, 2: True, 3: False}
    async with member(tmp_path, catalog_url, 1) as one:  # all were away
        assert await described(one) == {1: False, 2: True, 3: True}


@on_uvloop
async def test_no_election_finds_a_leader_for_partitions_of_a_stopped_broker(
    tmp_path: Path, catalog_url: str
) -> None:
    async with member(tmp_path, catalog_url, 1) as one:
        async with member(tmp_path, catalog_url, 2) as two:
            await create_at(one, [two], "t", 2)
            for broker in (one, two):
                for kind in (PREFERRED, UNCLEAN):
                    assert await elected(broker, kind, 0) == {0: NEEDLESS}
                    assert await elected(broker, kind, 1) == {1: NEEDLESS}
                    assert await elected(broker, kind, None) == {}
        await until(lambda: len(one.brokers) == 1)
        for kind, code in (
            (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ):
            assert await elected(one, kind, 0) == {0: NEEDLESS}
            assert await elected(one, kind, 1) == {1: code}
            assert await elected(one, kind, None) == {1: code}


@on_uvloop
async def test_a_replica_of_a_stopped_broker_is_eligible_or_stays_in_sync(
    tmp_path: Path, catalog_url: str
) -> None:
    """Eligible leader replicas have a feature of their own (KIP-966)."""
    by_name = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    by_page = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    async with member(tmp_path, catalog_url, 1) as one:
        async with member(tmp_path, catalog_url, 2) as two:
            await create_at(one, [two], "t", 2)
        await until(lambda: len(one.brokers) == 1)
        for in_sync, eligible in (([], [2]), ([2], [])):
            (topic,) = (await ask(one, by_name, 12)).topics
            _, lost = topic.partitions
            assert lost.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (lost.leader_id, lost.replica_nodes) == (NO_LEADER, [2])
            assert (lost.isr_nodes, lost.offline_replicas) == (in_sync, [2])
            (topic,) = (await ask(one, by_page, 0)).topics
            _, lost = topic.partitions
            assert not lost.error_code
            assert (lost.isr_nodes, lost.eligible_leader_replicas) == (in_sync, eligible)
            off = FeatureUpdate("eligible.leader.replicas.version", 0, 2)
            await one.features.update([off], validate_only=False)


@on_uvloop
async def test_all_brokers_name_one_leader_of_the_metadata(
    tmp_path: Path, catalog_url: str
) -> None:
    log = RequestedTopicData(
        topic_name="__cluster_metadata", partitions=[RequestedPartitionData(partition_index=0)]
    )
    async with (
        member(tmp_path, catalog_url, 1) as one,
        member(tmp_path, catalog_url, 2) as two,
    ):
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        for broker in (one, two):
            answer = await ask(broker, DescribeQuorumRequest(topics=[log]), 2)
            ((state,),) = (topic.partitions for topic in answer.topics)
            assert state.leader_id == 1
            assert [voter.replica_id for voter in state.current_voters] == [1]
            assert [observer.replica_id for observer in state.observers] == [2]
            (node,) = answer.nodes
            assert node.node_id == 1
            assert node.listeners[0].port == one.server.listeners[0].port


@on_uvloop
async def test_sessions_closed_long_ago_are_deleted_but_the_last_of_each_broker(
    catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "KEPT_SESSIONS", 3)
    ids = itertools.count()
    async with aclosing(_Store(catalog_url, ids)) as one:
        await one.store.prepare(lambda: Metadata("a-cluster", (), {}))
        await one.store.join(a_member(9), LEASE_MS)  # it never comes back
        epochs = []
        for _ in range(8):
            await one.store.join(a_member(1), LEASE_MS)
            epochs.append(one.store.session_epoch)
            await one.store.load()
            await one.store.leave(1)
        assert epochs == list(range(2, 10))
        rows = await one.store._main.read(
            lambda to: to.execute("SELECT epoch, node_id FROM session ORDER BY epoch")
        )
        assert rows == [(1, 9), (7, 1), (8, 1), (9, 1)]
        assert [one.node_id for one in await one.store.absent()] == [1]
        await one.store.join(a_member(2), LEASE_MS)
        await one.store.load()
        await one.store.unregister(1)
        assert await one.store.absent() == ()
        await one.store.join(a_member(1), LEASE_MS)
        assert one.store.session_epoch == 11


class _Store:
    def __init__(self, url: str, ids: itertools.count[int]) -> None:
        self.store = CatalogStore(lambda: open_engine(url), lambda: f"change-{next(ids)}")

    async def aclose(self) -> None:
        await self.store.close()
