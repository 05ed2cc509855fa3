"""The promises and limits of the articles on object stores, on shared topics.

The articles are listed in tests/cleaner/test_articles.py.
"""

from __future__ import annotations

import time
from pathlib import Path

from odradek.broker.composition import Broker
from odradek.broker.shared.snapshot import read_snapshot, shared_logs
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.cleaning import alter_topic
from tests.broker.live import client, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import EAGER, SMALL, bounds, keyed, log_of, records, stored
from tests.broker.test_shared_topics import cluster, produce

OFTEN = {**EAGER, "log.cleaner.backoff.ms": "20"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


async def put(broker: Broker, first: int, count: int) -> None:
    """Append records of two keys in turn, whose values are their numbers."""
    now_ms = time.time_ns() // 1_000_000
    for number in range(first, first + count):
        value = b"%d" % number + bytes(100)
        await produce(broker, keyed(b"k%d" % (number % 2), value, now_ms))


async def has_latest(broker: Broker, last: int) -> None:
    """Wait until a consumer reads a few records only, the last ones of both keys among them."""

    async def is_short() -> bool:
        return len(await records(broker)) < 12  # the active segment has 6

    await until(is_short)
    found = await records(broker)
    values = {key: (value or b"").rstrip(b"\0") for _, key, value in found}
    assert values == {b"k%d" % (number % 2): b"%d" % number for number in (last - 1, last)}


@on_uvloop
async def test_warpstream_a_silent_topic_is_compacted_at_its_greatest_lag(
    tmp_path: Path, catalog_url: str
) -> None:
    """The greatest lag holds below 2 hours, though nobody writes any more."""
    settings = {**EAGER, "log.cleaner.backoff.ms": "3600000"}
    configs = {
        **COMPACT,
        "min.cleanable.dirty.ratio": "1",
        "max.compaction.lag.ms": "400",
        "internal.segment.bytes": "100000",
    }
    async with cluster(tmp_path, catalog_url, 1, settings) as (broker,):
        await create(broker, "t", 1, configs)
        await known_everywhere([broker], "t")
        await put(broker, 0, 40)
        broker.cleaner.wake()  # the longest rest is an hour, and the topic is silent
        await has_latest(broker, 39)


@on_uvloop
async def test_zendesk_objects_whose_records_all_stay_are_not_rewritten(
    tmp_path: Path, catalog_url: str
) -> None:
    """A topic with each key once is cleaned, and not an object changes."""
    async with cluster(tmp_path, catalog_url, 1, OFTEN) as (broker,):
        configs = {**SMALL, **COMPACT, "min.compaction.lag.ms": "3600000"}
        await create(broker, "t", 1, configs)
        await known_everywhere([broker], "t")
        for number in range(60):
            await produce(broker, keyed(b"%d" % number, bytes(100), time.time_ns() // 1_000_000))
        await stored(broker)
        before = sealed(tmp_path, catalog_url)
        assert len(before) > 3
        async with client(broker) as one:
            await alter_topic(one, "t", {"min.compaction.lag.ms": "0"})
        home = broker.partitions.home_of(log_of(broker))
        last = log_of(broker).active.base_offset
        await until(lambda: home.cleaner_offsets.get(("t", 0)) == last)
        assert sealed(tmp_path, catalog_url).items() >= before.items()
        assert broker.sharing is not None
        assert broker.sharing.facts().counts.exchanged_segments == 0
        assert len(await records(broker)) == 60


def sealed(place: Path, url: str) -> dict[int, str]:
    """Return the objects of the sealed segments by base offset, as readers of the bucket do."""
    there = shared_logs({}, {
        "odradek.catalog.url": url, "odradek.object.store.url": f"file://{place / 'bucket'}"
    })  # fmt: skip
    (log,) = read_snapshot(there, lambda topic, _: topic == "t").logs
    return {
        part.base_offset: part.group
        for part in log.parts
        if part.max_timestamp is not None
    }


@on_uvloop
async def test_warpstream_a_policy_changes_in_both_directions(
    tmp_path: Path, catalog_url: str
) -> None:
    """WarpStream converts no topic between policies; here a shared topic changes in use."""
    async with cluster(tmp_path, catalog_url, 1, OFTEN) as (broker,), client(broker) as one:
        await create(broker, "t", 1, {**SMALL, "cleanup.policy": "delete", "retention.ms": "-1"})
        await known_everywhere([broker], "t")
        await put(broker, 0, 40)
        assert len(await records(broker)) == 40
        await alter_topic(one, "t", COMPACT)
        await has_latest(broker, 39)
        await alter_topic(one, "t", {"cleanup.policy": "delete"})
        await put(broker, 40, 20)
        assert [at for at, *_ in await records(broker)][-20:] == list(range(40, 60))
        await alter_topic(one, "t", {"retention.bytes": "0"})
        await until(lambda: log_of(broker).log_start_offset > 40)
        await alter_topic(one, "t", {**COMPACT, "retention.bytes": "-1"})
        await put(broker, 60, 40)
        await has_latest(broker, 99)
        start, end = await bounds(broker)
        assert start > 40
        assert end == 100
