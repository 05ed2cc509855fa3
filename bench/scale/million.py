"""Costs of a catalog with many partitions and brokers, on a PostgreSQL that flushes to the disk.

    python -m bench.scale.million [--partitions 10000 100000 1000000] [--brokers 100] [--of 10]

Each line is a catalog of that many shared partitions, `--of` a topic, led by so many brokers. The
rows of topics, partitions and sessions are written by SQL; then the store of a broker does its
work on them:

    bytes       topics and partitions with their indexes, in the database
    load        a broker that starts reads all of it
    memory      the memory that the process then has more
    poll        a broker asks for news, as it does 25 times a second
    renew       a broker extends its session
    change      the settings of a topic are changed
    takeover    another broker closes the session of one that is silent, and gives its partitions
                to the others
    follow      a broker reads the change of a takeover
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import psycopg

from bench.processes import resident_bytes
from bench.servers.postgresql import Postgresql, running
from odradek.broker.catalog.opening import open_catalog
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.metadata.members import Endpoint, Member
from odradek.broker.metadata.store import Resource, ResourceType

_LEASE_MS = 6_000
_REPEATS = 50


@dataclass
class Line:
    """The figures of one catalog; times are in seconds."""

    partitions: int
    bytes: int
    load_s: float
    memory_bytes: int
    poll_s: float
    renew_s: float
    change_s: float
    takeover_s: float
    follow_s: float
    led: int  # by the broker that is replaced

    def __str__(self) -> str:
        return (
            f"{self.partitions:9,} partitions: {self.bytes / self.partitions:.0f} bytes each, "
            f"load {self.load_s:.2f} s and {self.memory_bytes / self.partitions:.0f} bytes of "
            f"memory each, poll {self.poll_s * 1e3:.2f} ms, renew {self.renew_s * 1e3:.2f} ms, "
            f"change {self.change_s * 1e3:.2f} ms, takeover of {self.led:,} in "
            f"{self.takeover_s:.2f} s, followed in {self.follow_s:.2f} s"
        )


def fill(url: str, topics: int, of: int, brokers: int) -> None:
    """Write topics, partitions and sessions into an empty catalog."""
    endpoints = json.dumps([{"name": "C", "host": "h", "port": 9092, "protocol": "PLAINTEXT"}])
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        ids = [uuid.uuid4().bytes for _ in range(topics)]
        columns = "id, name, partition_count, replication_factor, created_ms, is_deleting"
        with cursor.copy(f"COPY topic ({columns}) FROM STDIN".encode()) as copy:
            for number, one in enumerate(ids):
                copy.write_row((one, f"topic-{number:07d}", of, 1, 0, 0))
        columns = "topic_id, number, leader, leader_epoch, host, replica, is_made"
        with cursor.copy(f"COPY partition ({columns}) FROM STDIN".encode()) as copy:
            for at in range(topics * of):
                leader = at % brokers + 1
                copy.write_row((ids[at // of], at % of, leader, 0, "", leader, 1))
        cursor.execute(
            "INSERT INTO session (epoch, node_id, host, endpoints, clock, expires_at_ms)"
            " SELECT one, one, 'host-' || one, %s, 'database',"
            " (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3600000"
            " FROM generate_series(1, %s) AS one",
            (endpoints, brokers),
        )
        # One is silent: its clock is that of a database before this one.
        cursor.execute("UPDATE session SET clock = 'another' WHERE node_id = 1")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def measure(server: Postgresql, partitions: int, of: int, brokers: int) -> Line:
    """Return the figures of a catalog of so many partitions."""
    url = server.create_database(f"catalog{partitions}")
    acting, following = await open_store(url), await open_store(url)
    fill(url, partitions // of, of, brokers)
    before = resident_bytes()
    began = time.perf_counter()
    metadata = await following.load()
    load_s = time.perf_counter() - began
    memory_bytes = resident_bytes() - before
    await acting.load()
    member = Member(brokers + 1, "here", None, (Endpoint("C", "h", 9092, "PLAINTEXT"),))
    await acting.join(member, _LEASE_MS)
    await acting.load()
    await following.load()
    topic = Resource(ResourceType.TOPIC, metadata.topics[0].name)
    poll_s = await average(following.has_news)
    renew_s = await average(lambda: acting.renew(_LEASE_MS))
    change_s = await average(lambda: acting.replace_configs({topic: {"retention.ms": "1"}}))
    found = await following.news()
    assert found is not None
    following.advance(*found[:2])
    await acting.renew(_LEASE_MS)
    began = time.perf_counter()
    expelled = await acting.expel(_LEASE_MS, 0)
    takeover_s = time.perf_counter() - began
    assert [one.node_id for one in expelled] == [1]
    began = time.perf_counter()
    found = await following.news()
    follow_s = time.perf_counter() - began
    assert found is not None
    await asyncio.gather(acting.close(), following.close())
    return Line(
        partitions, size_bytes(url), load_s, memory_bytes, poll_s, renew_s, change_s, takeover_s,
        follow_s, partitions // brokers,
    )  # fmt: skip


async def open_store(url: str) -> CatalogStore:
    """Open the catalog as a broker does."""
    store, _ = await open_catalog(url, lambda: "a-cluster", lambda: uuid.uuid4().hex)
    return store


async def average(work: Callable[[], Awaitable[object]]) -> float:
    """Return the time of one of many calls, in seconds."""
    began = time.perf_counter()
    for _ in range(_REPEATS):
        await work()
    return (time.perf_counter() - began) / _REPEATS


def size_bytes(url: str) -> int:
    """Return the size of the rows of topics and partitions in the database."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT pg_total_relation_size('topic') + pg_total_relation_size('partition')"
        ).fetchall()
    return int(rows[0][0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--of", type=int, default=10, help="Partitions of a topic.")
    given = parser.parse_args(arguments)
    with running(is_durable=True) as server:
        for partitions in given.partitions:
            print(asyncio.run(measure(server, partitions, given.of, given.brokers)), flush=True)


if __name__ == "__main__":
    main()
