"""What the web page asks: topics, groups, records, events, and who may change anything."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.broker.composition import Broker
from odradek.broker.web import records as records_routes
from odradek.storage.log import Log
from odradek.storage.segment import LOG
from tests.broker.live import PATIENCE_S, append, batch, create, on_uvloop, until
from tests.broker.test_cleaner_routes import LAZY, fill
from tests.broker.web import get, post, request, serving, url


async def refusal(broker: Broker, method: str, path: str, **query: str | int) -> tuple[int, str]:
    status, body = await request(broker, method, path, **query)
    assert status >= 400, body
    return status, json.loads(body)["error"]


# --- who may change anything ------------------------------------------------------------------


@pytest.mark.parametrize("action", ["run", "retry", "verify"])
@pytest.mark.parametrize("shown", ["", "Bearer ", "Bearer wrong", "Bearer \udcff", "Basic x"])
@on_uvloop
async def test_nothing_changes_without_the_token(
    tmp_path: Path, action: str, shown: str
) -> None:
    async with serving(tmp_path) as broker:
        log = await fill(broker, "prices")
        size_bytes = log.size_bytes
        path = f"/api/cleaner/{action}?topic=prices&partition=0"
        header = {"Authorization": shown.encode("utf-8", "surrogateescape").decode("latin-1")}
        status, body = await request(broker, "POST", path, header)
        assert status == 401
        assert str(tmp_path / "data" / "odradek-admin-token") in json.loads(body)["error"]
        assert log.size_bytes == size_bytes


@on_uvloop
async def test_the_token_is_of_one_start_and_for_the_broker_s_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "odradek-admin-token"
    async with serving(tmp_path) as broker:
        assert broker.http.token is not None
        token = broker.http.token.text
        assert path.read_text() == f"{token}\n" and len(token) >= 22
        assert (await get(broker, "/api/broker"))["token_file"] == str(path)
    path.chmod(0o644)
    async with serving(tmp_path) as broker:
        # Whoever has been shown the former one while nobody served there has nothing of it.
        assert broker.http.token is not None and broker.http.token.text != token
        assert path.read_text() == f"{broker.http.token.text}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        former = {"Authorization": f"Bearer {token}"}
        status, _ = await request(broker, "POST", "/api/cleaner/run?topic=prices", former)
        assert status == 401


@on_uvloop
async def test_a_token_that_is_set_is_in_no_file(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odradek.admin.token": "open sesame"}) as broker:
        await fill(broker, "prices")
        assert (await get(broker, "/api/broker"))["token_file"] is None
        assert not (tmp_path / "data" / "odradek-admin-token").exists()
        await post(broker, "/api/cleaner/run?topic=prices")
        wrong = {"Authorization": "Bearer open"}
        status, body = await request(broker, "POST", "/api/cleaner/run?topic=prices", wrong)
        assert status == 401 and "odradek.admin.token" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9308", 200), ("localhost", 200), ("[::1]:9308", 200), ("a.localhost:1", 200),
        ("evil.example:9308", 403), ("localhost.evil.example", 403), ("", 403), ("[x", 403),
    ],
)  # fmt: skip
@on_uvloop
async def test_another_site_s_name_leads_nowhere(tmp_path: Path, host: str, status: int) -> None:
    async with serving(tmp_path) as broker:
        found, _ = await request(broker, "GET", "/api/topics", {"Host": host})
        assert found == status


# --- topics -----------------------------------------------------------------------------------


@on_uvloop
async def test_bytes_are_counted_as_the_cleaner_sees_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        log = await fill(broker, "prices", partitions=2)
        append(log, batch(b"later", key=b"a"))
        dirty, active = log.segments[0].size_bytes, log.active.size_bytes
        (topic,) = (await get(broker, "/api/topics"))["topics"]
        nothing = {"clean": 0, "dirty": 0, "waiting": 0, "active": 0, "kept": 0}
        assert topic["bytes"] == nothing | {"dirty": dirty, "active": active}
        assert (topic["name"], topic["partitions"], topic["offsets"]) == ("prices", 2, 7)
        assert topic["dirty_ratio"] == 1.0 and topic["min_cleanable_dirty_ratio"] == 1.0

        await post(broker, "/api/cleaner/run?topic=prices&partition=0")
        told = await get(broker, "/api/topic?topic=prices")
        first, second = told["partition_rows"]
        clean = sum(one.size_bytes for one in log.segments[:-1])
        assert first["bytes"] == nothing | {"clean": clean, "active": log.active.size_bytes}
        assert first["dirty_ratio"] == 0.0 and first["sentence"] and not first["is_running"]
        assert second["bytes"] == nothing
        assert told["configs"] == dict(LAZY)


@on_uvloop
async def test_a_segment_that_is_too_young_counts_as_waiting(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        log = await fill(broker, "prices", {**LAZY, "min.compaction.lag.ms": "1000"})
        now_ms = broker.clock.now_ms()
        append(log, batch(b"new", key=b"a", timestamp=now_ms + 600_000), now_ms=now_ms)
        log.roll(now_ms)
        first, second, _ = (one.size_bytes for one in log.segments)
        (row,) = (await get(broker, "/api/topic?topic=prices"))["partition_rows"]
        assert row["bytes"]["dirty"] == first and row["bytes"]["waiting"] == second


@on_uvloop
async def test_a_topic_that_is_not_compacted_counts_as_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        log = await fill(broker, "clicks", {"cleanup.policy": "delete", "retention.ms": "-1"})
        (row,) = (await get(broker, "/api/topic?topic=clicks"))["partition_rows"]
        assert row["bytes"]["kept"] == log.segments[0].size_bytes
        assert row["dirty_ratio"] is None and row["verdict"] is None


@on_uvloop
async def test_a_quarantined_partition_is_shown_and_tried_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        log = await fill(broker, "prices")
        path = log.segments[0].path(LOG)
        intact = path.read_bytes()
        path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
        await post(broker, "/api/cleaner/run?topic=prices")
        (topic,) = (await get(broker, "/api/topics"))["topics"]
        assert topic["quarantined"] == 1
        (row,) = (await get(broker, "/api/topic?topic=prices"))["partition_rows"]
        assert "prices-0" in row["quarantined"]

        path.write_bytes(intact)
        # Nothing but this lets it be cleaned: the next try would come in a quarter of a minute.
        retried = {"topic": "prices", "partition": 0}
        assert await post(broker, "/api/cleaner/retry", **retried) == {"retried": retried}
        await until(lambda: not broker.cleaner.scheduler.progress.quarantined)
        assert (await get(broker, "/api/topics"))["topics"][0]["quarantined"] == 0
        status, told = await refusal(
            broker, "POST", "/api/cleaner/retry", topic="prices", partition=0
        )
        assert status == 409 and "prices-0" in told


# --- records ----------------------------------------------------------------------------------


async def put(broker: Broker) -> Log:
    (log,) = (await create(broker, "prices")).logs
    for at in range(10):
        append(log, batch(b"v%d" % at, key=b"k%d" % (at % 3), timestamp=1_000 + at))
    append(log, batch(None, key=b"k0", timestamp=2_000))
    append(log, batch(b"\xff\x00", key=None, timestamp=3_000))
    return log


@on_uvloop
async def test_the_newest_records_come_first_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await put(broker)
        offsets: list[int] = []
        query: dict[str, str | int] = {"topic": "prices", "limit": 5}
        while True:
            page = await get(broker, "/api/records", **query)
            offsets += [one["offset"] for one in page["records"]]
            if not page["before"]:
                break
            query["before"] = page["before"]
        assert offsets == list(range(11, -1, -1))
        newest = (await get(broker, "/api/records?topic=prices&limit=2"))["records"]
        assert newest[0]["key"] is None and newest[0]["value"]["hex"] == "ff00"
        assert newest[1]["key"]["text"] == "k0" and newest[1]["value"] is None


@on_uvloop
async def test_the_latest_of_each_key_tombstones_included(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await put(broker)
        found = (await get(broker, "/api/latest?topic=prices"))["records"]
        told = [(one["key"]["text"], one["value"] and one["value"]["text"]) for one in found]
        assert told == [("k0", None), ("k2", "v8"), ("k1", "v7")]
        (one,) = (await get(broker, "/api/latest?topic=prices&search=k1"))["records"]
        assert one["offset"] == 7


@on_uvloop
async def test_a_search_looks_into_keys_and_values(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await put(broker)
        in_values = (await get(broker, "/api/records?topic=prices&search=v4"))["records"]
        assert [one["offset"] for one in in_values] == [4]
        in_keys = (await get(broker, "/api/records?topic=prices&search=k1"))["records"]
        assert [one["offset"] for one in in_keys] == [7, 4, 1]


@on_uvloop
async def test_partitions_are_merged_by_time_and_paged_without_a_gap(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        logs = (await create(broker, "prices", 3, {"cleanup.policy": "compact"})).logs
        for at in range(30):
            append(logs[at % 3], batch(b"v%d" % at, key=b"k", timestamp=1_000 + at))
        values: list[str] = []
        query: dict[str, str | int] = {"topic": "prices", "limit": 7}
        for _ in range(5):
            page = await get(broker, "/api/records", **query)
            values += [one["value"]["text"] for one in page["records"]]
            query["before"] = page["before"]
        assert values == [f"v{at}" for at in range(29, -1, -1)]
        assert page["before"] == ""


@on_uvloop
async def test_long_values_are_cut_between_characters(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices")).logs
        text = "x" + "ä" * 5000
        append(log, batch(text.encode(), key=b"k"))
        (one,) = (await get(broker, "/api/records?topic=prices"))["records"]
        value = one["value"]
        assert value["is_cut"] and value["size_bytes"] == len(text.encode())
        assert text.startswith(value["text"]) and len(value["text"].encode()) > 4000


@on_uvloop
async def test_one_request_reads_so_much_and_says_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_routes, "READ_BYTES_MAX", 1)
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices")).logs
        for part in range(3):
            append(log, batch(b"needle" if part == 0 else b"hay", key=b"k"))
            log.roll(1_000)
        first = await get(broker, "/api/records?topic=prices&search=needle")
        assert first["records"] == [] and first["before"]
        found, before = first["records"], first["before"]
        while before:
            query = {"topic": "prices", "search": "needle", "before": before}
            page = await get(broker, "/api/records", **query)
            found, before = found + page["records"], page["before"]
        assert [one["offset"] for one in found] == [0]


@pytest.mark.parametrize(
    ("bound", "bound_to"),
    [("SHOWN_BYTES_MAX", 20), ("UNPACKED_BYTES_MAX", 1), ("DECODED_MAX", 1)],
)
@on_uvloop
async def test_pages_that_end_at_a_bound_leave_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, bound_to: int
) -> None:
    monkeypatch.setattr(records_routes, bound, bound_to)
    async with serving(tmp_path) as broker:
        logs = (await create(broker, "prices", 3)).logs
        for at in range(30):
            append(logs[at % 3], batch(b"v%02d" % at, b"again", key=b"k", timestamp=1_000 + at))
        found: list[tuple[int, int]] = []
        query: dict[str, str | int] = {"topic": "prices", "limit": 1000}
        page_count = 0
        while True:
            page = await get(broker, "/api/records", **query)
            found += [(one["partition"], one["offset"]) for one in page["records"]]
            page_count += 1
            if not page["before"]:
                break
            query["before"] = page["before"]
        assert page_count > 5
        for partition in range(3):
            offsets = [offset for number, offset in found if number == partition]
            assert offsets == list(range(19, -1, -1))


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/records", 400, "topic"),
        ("/api/records?topic=price", 404, "there are prices"),
        ("/api/records?topic=prices&partition=1", 404, "counted from 0"),
        ("/api/records?topic=prices&limit=0", 400, "1 to 1000"),
        ("/api/records?topic=prices&limit=1001", 400, "1 to 1000"),
        ("/api/records?topic=prices&before=x", 400, "PARTITION:OFFSET"),
        ("/api/records?topic=prices&before=0:-1", 400, "PARTITION:OFFSET"),
        ("/api/latest?topic=prices&before=0:1", 400, "before is not a parameter"),
        ("/api/topic?topic=price", 404, "there are prices"),
        ("/api/group", 400, "group="),
        ("/api/group?group=readers", 404, "readers"),
        ("/api/topics?x=1", 400, "x is not a parameter"),
    ],
)
@on_uvloop
async def test_requests_that_cannot_be_answered_say_why(
    tmp_path: Path, path: str, status: int, word: str
) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "prices")
        found, told = await refusal(broker, "GET", path)
        assert found == status and word in told


@on_uvloop
async def test_a_damaged_partition_hides_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        logs = (await create(broker, "prices", 2)).logs
        for log in logs:
            append(log, batch(b"v", key=b"k"))
        path = logs[0].segments[0].path(LOG)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        page = await get(broker, "/api/records?topic=prices")
        assert [one["partition"] for one in page["records"]] == [1]
        assert [one["partition"] for one in page["problems"]] == [0]


# --- groups -----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@on_uvloop
async def test_the_lag_of_each_group_is_listed(tmp_path: Path, protocol: str) -> None:
    async with serving(tmp_path) as broker:
        await put(broker)
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{broker.server.listeners[0].port}",
            "group.id": "readers",
            "client.id": "reader-1",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)

        def read() -> None:
            consumer.subscribe(["prices"])
            got = 0
            while got < 4:
                got += len(consumer.consume(4 - got, timeout=1))
            consumer.commit(offsets=[TopicPartition("prices", 0, 4)], asynchronous=False)

        await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_S)
        (group,) = (await get(broker, "/api/groups"))["groups"]
        assert group["group"] == "readers" and group["type"] == protocol
        assert (group["members"], group["partitions"], group["lag"]) == (1, 1, 8)
        told = await get(broker, "/api/group?group=readers")
        (row,) = told["partition_rows"]
        assert (row["offset"], row["end_offset"], row["lag"]) == (4, 12, 8)
        assert row["member"] == "reader-1" and told["members"][0]["partitions"] == 1
        await asyncio.to_thread(consumer.close)
        (group,) = (await get(broker, "/api/groups"))["groups"]
        assert (group["members"], group["state"]) == (0, "Empty")


# --- events -----------------------------------------------------------------------------------


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))


@on_uvloop
async def test_a_run_is_sent_to_clients_that_listen(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, aiohttp.ClientSession() as session:
        await fill(broker, "prices")
        async with session.get(f"{url(broker)}/api/events") as response:
            assert response.content_type == "text/event-stream"
            stream = events(response)
            name, first = await anext(stream)
            assert name == "tick" and first["topics"] == 1 and first["problems"] == []
            await post(broker, "/api/cleaner/run?topic=prices")

            async def told() -> None:
                async for name, _ in stream:
                    if name == "cleaner":
                        return

            await asyncio.wait_for(told(), PATIENCE_S)
        runs = (await get(broker, "/api/cleaner/runs"))["runs"]
        assert [one["outcome"] for one in runs] == ["CLEANED"]


@on_uvloop
async def test_streams_end_with_the_broker(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(tmp_path) as broker:
            response = await session.get(f"{url(broker)}/api/events")
            assert await response.content.readline() == b"event: tick\n"
        await asyncio.wait_for(response.read(), PATIENCE_S)


@on_uvloop
async def test_no_more_listen_than_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from odradek.broker.web import state

    monkeypatch.setattr(state, "LISTENERS_MAX", 1)
    async with serving(tmp_path) as broker, aiohttp.ClientSession() as session:
        async with session.get(f"{url(broker)}/api/events") as response:
            await response.content.readline()
            status, told = await refusal(broker, "GET", "/api/events")
            assert status == 503 and "close a page" in told

        async def is_free() -> bool:
            async with session.get(f"{url(broker)}/api/events") as again:
                return again.status == 200

        await until(is_free, "another may listen")
