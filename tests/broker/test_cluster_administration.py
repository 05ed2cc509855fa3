"""Administrators' requests find at each broker the changes that another has acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.servers.postgresql import Postgresql
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import Client, client, on_uvloop, until
from tests.broker.test_cluster import member
from tests.support.requests import altering, creatable, creating

_TIMES = 10
_TIMEOUT_MS = 10_000


@asynccontextmanager
async def two_brokers(folder: Path, url: str) -> AsyncIterator[tuple[Client, Client]]:
    """Return clients of two brokers that know each other."""
    async with (
        member(folder, url, 1) as one,
        member(folder, url, 2) as two,
        client(one) as here,
        client(two) as there,
    ):
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        yield here, there


async def create(at: Client, name: str) -> int:
    answer = await at.ask(creating(creatable(name)), version=7)
    return answer.topics[0].error_code


async def delete(at: Client, name: str) -> int:
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
    answer = await at.ask(asked, version=6)
    return answer.responses[0].error_code


async def enlarge(at: Client, name: str) -> int:
    asked = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None)],
        timeout_ms=_TIMEOUT_MS,
        validate_only=False,
    )
    answer = await at.ask(asked, version=3)
    return answer.results[0].error_code


async def alter_configs(at: Client, name: str) -> int:
    answer = await at.ask(altering(name, {"retention.ms": "5"}), version=1)
    return answer.responses[0].error_code


async def cancel_reassignment(at: Client, name: str) -> int:
    partition = ReassignablePartition(partition_index=0, replicas=None)
    asked = AlterPartitionReassignmentsRequest(
        timeout_ms=_TIMEOUT_MS, topics=[ReassignableTopic(name=name, partitions=[partition])]
    )
    answer = await at.ask(asked, version=1)
    return answer.responses[0].partitions[0].error_code


async def elect_leader(at: Client, name: str) -> int:
    asked = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=name, partitions=[0])],
        timeout_ms=_TIMEOUT_MS,
    )
    answer = await at.ask(asked, version=2)
    return answer.replica_election_results[0].partition_result[0].error_code


async def delete_records(at: Client, name: str) -> int:
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=_TIMEOUT_MS
    )
    answer = await at.ask(asked, version=2)
    return answer.topics[0].partitions[0].error_code


# Each kind of request, and its answers where the topic is known: not every broker leads it.
_REQUESTS = {
    enlarge: {0},
    alter_configs: {0},
    cancel_reassignment: {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS},
    elect_leader: {ErrorCode.ELECTION_NOT_NEEDED},
    delete_records: {0, ErrorCode.NOT_LEADER_OR_FOLLOWER},
    delete: {0},
}


@on_uvloop
async def test_each_broker_knows_a_topic_that_another_has_just_created(
    tmp_path: Path, catalog_url: str
) -> None:
    async with two_brokers(tmp_path, catalog_url) as (here, there):
        for request, expected in _REQUESTS.items():
            for number in range(_TIMES):
                name = f"{request.__name__}-{number}"
                assert await create(here, name) == 0
                assert await request(there, name) in expected, request.__name__


@on_uvloop
async def test_a_name_is_free_at_each_broker_once_another_has_deleted_its_topic(
    tmp_path: Path, catalog_url: str
) -> None:
    async with two_brokers(tmp_path, catalog_url) as (here, there):
        assert await create(here, "t") == 0
        for _ in range(_TIMES):
            assert await delete(there, "t") == 0
            assert await create(here, "t") == 0


@on_uvloop
async def test_a_broker_decides_by_its_memory_while_the_catalog_is_away(
    tmp_path: Path, new_database: str, postgresql: Postgresql
) -> None:
    async with member(tmp_path, new_database, 1) as one, client(one) as here:
        assert await create(here, "t") == 0
        postgresql.stop()
        try:
            assert await delete_records(here, "t") == 0
            assert await elect_leader(here, "t") == ErrorCode.ELECTION_NOT_NEEDED
            assert await create(here, "t") == ErrorCode.TOPIC_ALREADY_EXISTS
            assert await delete(here, "t") not in {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        finally:
            postgresql.start()
