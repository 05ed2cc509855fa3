"""The samples of the last quarter of an hour: what came to the counts, second by second."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.counters.latency import BUCKET_COUNT, bound_us
from odradek.broker.observability.samples import KEPT, Counted, Samples
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.live import append, batch, client, create, live, on_uvloop, until

NONE = (0,) * BUCKET_COUNT
NOTHING = Counted(0, 0, 0, 0, NONE, NONE, NONE, 0, 0, 0)
MS_BUCKET = 40  # its bound is 1.024 ms


class World:
    """Counts and clocks that a test sets."""

    def __init__(self) -> None:
        self.counted, self.now_s = NOTHING, 0.0
        self.samples = Samples(
            lambda: self.counted, lambda: int(self.now_s * 1000), lambda: self.now_s
        )

    def pass_time(self, seconds: float, **counted: Any) -> None:
        self.now_s += seconds
        self.counted = replace(self.counted, **counted)
        asyncio.run(self.samples.take())

    def columns(self, since_ms: int = 0) -> dict[str, list[float | None]]:
        told = self.samples.as_json(since_ms)["columns"]
        assert isinstance(told, dict)
        return told


def test_without_a_sample_all_columns_are_there_and_empty() -> None:
    columns = World().columns()
    assert {"at_ms", "bytes_in", "request_p99_ms", "connections"} <= columns.keys()
    assert not any(columns.values())


def test_counts_are_given_per_second_however_long_a_sample_took() -> None:
    world = World()
    world.pass_time(2, bytes_in=1000, records_in=10, requests=4, connections=3)
    world.pass_time(1, bytes_in=1500, cleaner_bytes_read=70, cleaner_bytes_written=20)
    columns = world.columns()
    assert columns["at_ms"] == [2000, 3000]
    assert columns["bytes_in"] == [500, 500]
    assert columns["records_in"] == [5, 0]
    assert columns["requests"] == [2, 0]
    assert columns["connections"] == [3, 3]
    assert columns["cleaner_bytes_read"] == [0, 70]
    assert columns["cleaner_bytes_written"] == [0, 20]


def test_latencies_are_of_their_second_only() -> None:
    world = World()
    counts = tuple(10 * (at == MS_BUCKET) for at in range(BUCKET_COUNT))
    world.pass_time(1, requests_us=counts)
    world.pass_time(1)
    first, second = world.columns()["request_p99_ms"]
    assert first is not None
    assert bound_us(MS_BUCKET - 1) / 1000 < first < bound_us(MS_BUCKET) / 1000
    assert second is None
    assert world.columns()["fetch_p50_ms"] == [None, None]


def test_a_quarter_of_an_hour_is_kept() -> None:
    world = World()
    for _ in range(KEPT + 5):
        world.pass_time(1)
    times = world.columns()["at_ms"]
    assert len(times) == KEPT
    assert times[-1] == (KEPT + 5) * 1000


def test_only_samples_after_the_given_time_are_returned() -> None:
    world = World()
    for _ in range(3):
        world.pass_time(1)
    assert world.columns(since_ms=2000)["at_ms"] == [3000]


@pytest.mark.slow
@on_uvloop
async def test_a_broker_samples_itself(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a", b"b"))
        await one.ask(ApiVersionsRequest(), version=0)

        def columns() -> Any:
            return broker.samples.as_json()["columns"]

        await until(lambda: any(columns()["requests"]))
        told = columns()
        assert sum(told["records_in"]) > 0
        assert sum(told["bytes_in"]) > 0
        assert told["connections"][-1] == 1
        assert max(one for one in told["request_p99_ms"] if one is not None) > 0
