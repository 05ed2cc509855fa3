"""Moves of partitions between hosts that are asked for over HTTP, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker.composition import Broker
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.storage.log import Log
from tests.broker.live import append, batch, client, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_cluster_routes import cluster, metrics, rows, value
from tests.broker.web import get, post, request

THROTTLED = {"follower.replication.throttled.replicas": "*"}
RATE = "follower.replication.throttled.rate"
# Of batches that are so large that the first one leaves too much to hand over soon.
COUNT, BATCH_BYTES = 3, 600_000


async def set_rate(broker: Broker, rate: int | None) -> None:
    """Set the rate at which a broker copies; None takes the limit away."""
    values = {} if rate is None else {RATE: str(rate)}
    await broker.configs.alter(str(broker.node_id), lambda _: values, validate_only=False)


def led(broker: Broker) -> list[Log]:
    return [log for log in broker.logs() if log.topic == "t"]


async def listed(broker: Broker) -> Mapping[tuple[str, int], Any]:
    """Return the logs that a broker lists in its log directories."""
    async with client(broker) as one:
        answer = await one.ask(DescribeLogDirsRequest(topics=None), version=4)
    return {
        (topic.name, log.partition_index): log
        for home in answer.results
        for topic in home.topics
        for log in topic.partitions
    }


@on_uvloop
async def test_a_broker_alone_has_nothing_to_move(tmp_path: Path) -> None:
    async with cluster(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", (1,)) as (one,):
        await create(one, "t", 2)
        assert await post(one, "/api/cluster/rebalance", between_hosts="true") == {
            "moves": 0, "copies": 0,
        }  # fmt: skip
        status, body = await request(one, "POST", "/api/cluster/drain?broker=1")
        assert (status, b"no other broker" in body) == (409, True)
        shown = await get(one, "/api/cluster")
        assert (shown["moving"], shown["moving_rows"]) == (0, [])


@on_uvloop
async def test_a_drained_broker_is_copied_to_another_host_and_gets_its_share_back(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", (1, 2)) as (one, two):
        await create(one, "t", 4, THROTTLED)
        await known_everywhere([two], "t")
        await until(lambda: len(led(one)) == len(led(two)) == 2)
        for log in led(one):
            append(log, *(batch(bytes(BATCH_BYTES)) for _ in range(COUNT)))
        # The copy of each partition gets one batch, and waits for minutes.
        await set_rate(two, 1)
        numbers = sorted(log.partition for log in led(one))
        assert await post(one, "/api/cluster/drain?broker=1") == {"moves": 2, "copies": 2}

        async def rows_of(broker: Broker) -> list[dict[str, Any]]:
            shown = await get(broker, "/api/cluster")
            found: list[dict[str, Any]] = shown["moving_rows"]
            assert shown["moving"] == len(found)
            return found

        async def has_begun() -> bool:
            return any(row["copied_offset"] for row in await rows_of(two))

        await until(has_begun)
        assert await post(two, "/api/cluster/drain?broker=1") == {"moves": 0, "copies": 0}
        for broker, end_offset in ((one, COUNT), (two, None)):
            found = await rows_of(broker)
            assert [row["partition"] for row in found] == numbers
            for row in found:
                assert (row["topic"], row["from"], row["to"]) == ("t", 1, 2)
                assert row["end_offset"] == end_offset
                assert row["copied_offset"] in (None, 0, 1)
        name = "kafka_server_replicamanager_reassigningpartitions"
        assert [value(await metrics(broker), name) for broker in (one, two)] == [2, 0]
        copied = [row["partition"] for row in await rows_of(two) if row["copied_offset"]]
        logs = await listed(two)
        assert {*copied} <= {number for topic, number in logs if topic == "t"}
        for number in copied:
            log = logs["t", number]
            assert log.partition_size > 0
            assert (log.is_future_key, log.offset_lag) == (False, 0)

        await set_rate(two, None)
        await until(lambda: len(led(two)) == 4)
        assert not led(one)
        assert {log.log_end_offset for log in led(two) if log.partition in numbers} == {COUNT}
        shown = await get(two, "/api/cluster")
        assert (shown["moving"], shown["moving_rows"]) == (0, [])
        assert [row["leads"] for row in rows(shown).values()] == [0, 4]
        assert await post(two, "/api/cluster/rebalance") == {"moves": 0, "copies": 0}
        moved = await post(two, "/api/cluster/rebalance", between_hosts="true")
        assert moved == {"moves": 2, "copies": 2}
        await until(lambda: len(led(one)) == len(led(two)) == 2)
        moved = await post(one, "/api/cluster/rebalance", between_hosts="true")
        assert moved == {"moves": 0, "copies": 0}


@on_uvloop
async def test_the_target_of_a_move_may_be_asked_for_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", (1, 2)) as (one, two):
        await create(one, "t", 2)
        await known_everywhere([two], "t")
        await until(lambda: len(led(one)) == len(led(two)) == 1)
        assert await post(two, "/api/cluster/drain?broker=1") == {"moves": 1, "copies": 1}
        await until(lambda: len(led(two)) == 2)
