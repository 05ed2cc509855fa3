"""What the cleaner tells of shared logs: their levels, its requests to the bucket, their costs."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.broker.counters.object_requests import ObjectRequests
from odradek.broker.shared.bill import Prices
from odradek.storage.metering import StoreUse
from odradek.storage.objects.counting import DELETE, READS, WRITES, Request
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_bill import AWS
from tests.broker.test_cleaner_routes import LAZY, fill
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import EAGER, keyed, log_of, rows, stored, url_of
from tests.broker.test_shared_topics import (
    close_out,
    cluster,
    leader_of,
    produce,
    served_by_others,
)
from tests.broker.web import SETTINGS, get, post

KEYS, SEGMENTS, BATCHES, VALUE_BYTES = 3, 2, 8, 900_000
# Slow answers are waited for: each request is one that the work needs.
ALL = {
    **EAGER,
    **SETTINGS,
    "odradek.object.store.price.gb.out": "0.09",
    "odradek.object.store.hedged.percent": "0",
}
PRICES = Prices(AWS.put, AWS.get, AWS.gb_month, 0.09)
WHY = "/api/cleaner/why?topic=t&partition=0"


async def sealed(broker: Broker) -> None:
    """Seal the active segment, and wait until the bucket has it and nothing is to be done."""
    assert broker.sharing is not None
    uploads = broker.sharing.uploads
    log_of(broker).roll(0)
    await stored(broker)
    await until(lambda: not uploads._sealed and not uploads._turn.locked())
    tail = uploads._tails[log_of(broker).topic_id, 0]
    assert [one.base_offset for one in log_of(broker).segments[:-1]] == [
        base for base, row in sorted(tail.rows.items()) if not row.is_open
    ]


async def put_more(broker: Broker) -> None:
    """Append newer values of the keys."""
    for at in range(KEYS):
        answer = await produce(broker, keyed(b"k%d" % at, bytes(100), 100 + at))
        assert answer.error_code == 0
    await sealed(broker)


@asynccontextmanager
async def taken_over(path: Path) -> AsyncIterator[Broker]:
    """A broker that leads a log with some MB of values, all of which the bucket alone has."""
    chance = random.Random(1)
    async with cluster(path, url_of(path), 2, ALL) as brokers:
        await create(brokers[0], "t", 1, LAZY)
        await known_everywhere(brokers, "t")
        former = leader_of(brokers)
        assert former is not None
        for at in range(SEGMENTS * BATCHES):
            value = chance.randbytes(VALUE_BYTES)
            answer = await produce(former, keyed(b"k%d" % (at % KEYS), value, 1 + at))
            assert answer.error_code == 0
            if (at + 1) % BATCHES == 0:
                await sealed(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        await sealed(leader)
        yield leader


def billed(requests: list[tuple[str, Request]]) -> StoreUse:
    """Add requests up as a bill does."""
    found = [one for _, one in requests if one.method != DELETE]
    return StoreUse(
        sum(one.method in WRITES for one in found),
        sum(one.method in READS for one in found),
        sum(one.sent_bytes for one in found),
        sum(one.received_bytes for one in found),
    )


def use_of(shown: dict[str, Any]) -> StoreUse:
    return StoreUse(**{name: value for name, value in shown.items() if name != "dollars"})


@on_uvloop
async def test_a_run_has_the_requests_that_the_store_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, Request]] = []
    count = ObjectRequests.count

    def note(self: ObjectRequests, request: Request) -> None:
        seen.append((threading.current_thread().name, request))
        count(self, request)

    monkeypatch.setattr(ObjectRequests, "count", note)
    async with taken_over(tmp_path) as broker:
        plan = (await get(broker, "/api/cleaner/plan?topic=t&exact=false"))["plans"][0]
        most = use_of(plan["at_most"]["store"])
        seen.clear()
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=t"))["outcomes"]
        shown = outcome["result"]["store"]
        use = use_of(shown)
        assert use == billed(seen)
        assert shown["dollars"] == pytest.approx(PRICES.dollars(use), rel=1e-12)
        assert {name.rsplit("_", 1)[0] for name, _ in seen} >= {"bucket-segments", "read-ahead"}
        assert use.received_bytes >= SEGMENTS * BATCHES * VALUE_BYTES
        assert use.sent_bytes >= KEYS * VALUE_BYTES
        # The bounds hold; of bytes sent they have only those of batches.
        assert use.puts <= most.puts
        assert use.gets <= most.gets
        assert use.received_bytes <= most.received_bytes
        assert outcome["result"]["written_bytes"] <= most.sent_bytes
        assert plan["at_most"]["store"]["dollars"] >= shown["dollars"] > 0
        history = await get(broker, "/api/cleaner/history?topic=t&partition=0")
        everything = await get(broker, "/api/cleaner/runs")
        assert history["runs"][-1]["result"] == everything["runs"][0]["result"]
        assert history["runs"][-1]["result"]["store"] == shown


@on_uvloop
async def test_a_dry_run_knows_the_puts_and_a_run_after_it_reads_the_cache(
    tmp_path: Path,
) -> None:
    async with taken_over(tmp_path) as broker:
        (plan,) = (await get(broker, "/api/cleaner/plan?topic=t"))["plans"]
        most, exact = use_of(plan["at_most"]["store"]), plan["exact"]
        assert (most.puts, most.sent_bytes) == (exact["segments_written"], exact["written_bytes"])
        assert exact["store"] is None
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=t"))["outcomes"]
        use = use_of(outcome["result"]["store"])
        assert use.puts == most.puts > 0
        assert (use.gets, use.received_bytes) == (0, 0)
        (after,) = (await get(broker, "/api/cleaner/plan?topic=t"))["plans"]
        assert use_of(after["at_most"]["store"]) == StoreUse()


@on_uvloop
async def test_the_levels_follow_the_records(tmp_path: Path) -> None:
    late = {**ALL, "odradek.wal.checkpoint.ms": "3600000"}  # the active segment stays in the WAL
    async with cluster(tmp_path, url_of(tmp_path), 1, late) as (broker,):
        await create(broker, "t", 1, LAZY)
        await known_everywhere([broker], "t")
        for at in range(12):
            await produce(broker, keyed(b"k%d" % at, bytes(100), 1 + at))
            if at in (3, 7):
                await sealed(broker)
        log = log_of(broker)
        sizes = [one.size_bytes for one in log.segments]
        found = (await get(broker, WHY))["levels"]
        assert found["wal"] == {"bytes": sizes[-1]}
        assert found["clean"] == {"segments": 0, "objects": 0, "bytes": 0}
        assert found["dirty"] == {"segments": 2, "objects": 2, "bytes": sum(sizes[:-1])}
        await post(broker, "/api/cleaner/run?topic=t")
        await produce(broker, keyed(b"new", bytes(100)))
        await sealed(broker)
        found = (await get(broker, WHY))["levels"]
        assert found["wal"] == {"bytes": 0}
        assert (found["dirty"]["segments"], found["dirty"]["objects"]) == (1, 1)
        query = "SELECT count(*), count(DISTINCT key), sum(size_bytes) FROM segment"
        clean = rows(tmp_path, f"{query} WHERE next_offset <= 12")
        assert clean == [tuple(found["clean"].values())]
        (row,) = (await get(broker, "/api/topic?topic=t"))["partition_rows"]
        assert row["levels"] == found


@on_uvloop
async def test_a_local_log_has_neither_levels_nor_costs(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, ALL) as (broker,):
        await fill(broker, "t", {**LAZY, "odradek.storage": "local"})
        (plan,) = (await get(broker, "/api/cleaner/plan?topic=t"))["plans"]
        assert plan["at_most"]["store"] is plan["exact"]["store"] is None
        assert (await get(broker, WHY))["levels"] is None
        (row,) = (await get(broker, "/api/topic?topic=t"))["partition_rows"]
        assert row["levels"] is None
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=t"))["outcomes"]
        assert (outcome["outcome"], outcome["result"]["store"]) == ("CLEANED", None)
