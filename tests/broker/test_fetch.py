"""Fetch: what is answered at once, what waits for what, and how much comes of it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.api_table import BY_KEY
from odradek.broker.apis import fetch
from odradek.broker.composition import Broker
from odradek.broker.context import RequestContext
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import FETCH_KEY
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.wire import ZERO_UUID
from odradek.storage.errors import DiskFailure
from tests.broker.live import append, batch, client, create, live, on_uvloop, until

FIRST, LAST = BY_KEY[1].first, BY_KEY[1].last
IDS_SINCE = 13
LONG_MS = 3_600_000
VERSIONS = range(FIRST, LAST + 1)


def part(
    number: int = 0, offset: int = 0, *, size_max: int = 1 << 20, epoch: int = -1
) -> FetchPartition:
    return FetchPartition(
        partition=number,
        fetch_offset=offset,
        partition_max_bytes=size_max,
        current_leader_epoch=epoch,
    )


def request(
    topics: Mapping[tuple[str, bytes], Sequence[FetchPartition]],
    *,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    wait_ms: int = 0,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    return FetchRequest(
        replica_state=ReplicaState(),
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=list(parts))
            for (name, topic_id), parts in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


async def send(broker: Broker, asked: FetchRequest, version: int = 12) -> FetchResponse:
    async with client(broker) as one:
        response: FetchResponse = await one.ask(asked, version=version)
        return response


def parts_of(response: FetchResponse) -> list[PartitionData]:
    return [one for topic in response.responses for one in topic.partitions]


def values(data: PartitionData) -> list[bytes]:
    """Return the values of all records, whose batches came whole."""
    records = bytes(data.records or b"")
    return [
        record.value or b""
        for position, header in iterate_batches(records)
        for record in decode_records(records[position : position + header.size_bytes])
    ]


# --- what comes -------------------------------------------------------------------------------


@on_uvloop
async def test_records_come_at_every_version(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        append(topic.partitions[1], batch(b"a", b"b"), batch(b"c"))
        for version in VERSIONS:
            asked = request({("orders", topic.topic_id): [part(0), part(1, 1)]}, isolation=1)
            response = await send(broker, asked, version)
            assert (response.error_code, response.session_id) == (0, 0)
            (found,) = response.responses
            assert found.topic == ("orders" if version < IDS_SINCE else "")
            assert found.topic_id == (ZERO_UUID if version < IDS_SINCE else topic.topic_id)
            empty, full = found.partitions
            assert (empty.partition_index, bytes(empty.records or b"")) == (0, b"")
            assert (full.partition_index, values(full)) == (1, [b"a", b"b", b"c"])
            for one, end in ((empty, 0), (full, 3)):
                assert one.error_code == 0
                assert (one.high_watermark, one.last_stable_offset) == (end, end)
                assert one.log_start_offset == (0 if version >= 5 else -1)
                assert one.aborted_transactions == []
                assert one.preferred_read_replica == -1


@on_uvloop
async def test_missing_topics_partitions_and_offsets_are_answered_by_kafkas_codes(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        other = await create(broker, "payments")
        for version in VERSIONS:
            asked = request(
                {
                    ("nowhere", bytes(15) + b"\x07"): [part()],
                    ("orders", topic.topic_id): [part(1), part(-1), part(0, 1)],
                    ("payments", other.topic_id): [part(0, -1)],
                },
                wait_ms=LONG_MS,
            )
            response = await send(broker, asked, version)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [one.error_code for one in parts_of(response)] == [
                ErrorCode.OFFSET_OUT_OF_RANGE,
                ErrorCode.OFFSET_OUT_OF_RANGE,
                unknown if version < IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_ID,
                unknown,
                unknown,
            ]
            for one in parts_of(response):
                assert (one.high_watermark, one.last_stable_offset) == (-1, -1)
                assert one.log_start_offset == -1
                assert bytes(one.records or b"") == b""


@on_uvloop
async def test_a_reader_with_another_epoch_in_mind_is_fenced(tmp_path: Path) -> None:
    unknown, fenced = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        topic.partitions[0].leader_epoch = 3
        for version in (9, 12, 15, 16, LAST):
            for epoch, code in ((-1, 0), (-2, 0), (3, 0), (4, unknown), (2, fenced), (0, fenced)):
                asked = request({("orders", topic.topic_id): [part(epoch=epoch)]})
                response = await send(broker, asked, version)
                (data,) = parts_of(response)
                assert data.error_code == code
                if code == fenced and version >= 16:  # KIP-951
                    assert data.current_leader.leader_id == broker.node_id
                    assert data.current_leader.leader_epoch == 3
                    (leader,) = response.node_endpoints
                    port = broker.server.listeners[0].port
                    assert (leader.node_id, leader.host, leader.port) == (1, "127.0.0.1", port)
                else:
                    assert data.current_leader.leader_id == -1
                    assert response.node_endpoints == []


# --- sessions (KIP-227) -----------------------------------------------------------------------


@on_uvloop
async def test_a_request_within_an_unknown_session_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        for session in ((77, 1), (77, 2**31 - 1), (0, 1)):
            for topics in ({}, {("orders", topic.topic_id): [part()]}):
                asked = request(topics, session=session, wait_ms=LONG_MS)
                asked.forgotten_topics_data = [ForgottenTopic(topic_id=bytes(16), partitions=[0])]
                response = await send(broker, asked, LAST)
                assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                assert (response.session_id, response.responses) == (0, [])


@on_uvloop
async def test_a_request_for_nothing_is_answered_at_once(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        response = await send(broker, request({}, wait_ms=LONG_MS))
        assert (response.error_code, response.responses) == (0, [])


# --- how much (KIP-74) ------------------------------------------------------------------------


def context_of(broker: Broker, version: int = LAST) -> RequestContext:
    listener = broker.server.listeners[0]
    rights = broker.security.authorizer
    return RequestContext(rights, listener, "/127.0.0.1", version, 1, "a-client", FETCH_KEY)


@on_uvloop
async def test_limits_hold_but_for_the_first_batch(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 4)

        @given(
            sizes=st.lists(st.lists(st.integers(1, 400), max_size=4), min_size=1, max_size=4),
            starts=st.lists(st.integers(0, 4), min_size=4, max_size=4),
            part_max=st.integers(0, 1500),
            max_bytes=st.integers(0, 3000),
        )
        def check(
            sizes: list[list[int]], starts: list[int], part_max: int, max_bytes: int
        ) -> None:
            wanted, there = [], []
            for number, own in enumerate(sizes):
                log = topic.partitions[number]
                start = log.log_end_offset
                append(log, *[batch(bytes(size)) for size in own])
                offset = min(start + starts[number], log.log_end_offset)
                wanted.append(part(number, offset, size_max=part_max))
                there.append(b"".join(bytes(data) for _, data in log.batches(offset)))
            asked = request({("", topic.topic_id): wanted}, min_bytes=0, max_bytes=max_bytes)
            response = fetch.handle(broker, context_of(broker), asked)
            assert isinstance(response, FetchResponse)
            found = [bytes(one.records or b"") for one in parts_of(response)]
            assert found == expected(there, part_max, max_bytes)

        check()


def expected(there: Sequence[bytes], part_max: int, max_bytes: int) -> list[bytes]:
    """Cut what is there from each partition's offset on as KIP-74 says."""
    cut, left, is_first = [], max_bytes, True
    for records in there:
        limit, first_size = max(min(part_max, left), 0), size_of_first(records)
        if is_first and records:
            limit, is_first = max(limit, first_size), False
        cut.append(records[:limit] if limit >= first_size else b"")
        left -= len(cut[-1])
    return cut


def size_of_first(records: bytes) -> int:
    return int.from_bytes(records[8:12], "big") + 12 if records else 0


@on_uvloop
async def test_the_brokers_limit_counts_as_well(tmp_path: Path) -> None:
    async with live(tmp_path, {"fetch.max.bytes": "1024"}) as broker:
        topic = await create(broker, "orders", 2)
        for log in topic.partitions:
            append(log, *[batch(bytes(600))] * 3)
        asked = request({("orders", bytes(16)): [part(0), part(1)]})
        first, second = parts_of(await send(broker, asked))
        assert (len(first.records or b""), len(second.records or b"")) == (1024, 0)


# --- when -------------------------------------------------------------------------------------


@on_uvloop
async def test_a_fetch_waits_for_enough_bytes_of_all_its_partitions(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders", 3)
        piece = batch(b"a")
        wanted = request(
            {("orders", bytes(16)): [part(0), part(1)]},
            min_bytes=3 * len(piece),
            wait_ms=LONG_MS,
        )
        append(topic.partitions[0], piece)
        one.send(wanted, version=12)
        await until(lambda: len(broker.purgatory))
        append(topic.partitions[2], *[piece] * 5)  # which it does not read
        append(topic.partitions[1], piece)
        await asyncio.sleep(0)
        assert len(broker.purgatory) == 1
        append(topic.partitions[0], piece)
        response = (await one.receive())[1]
        assert [values(data) for data in parts_of(response)] == [[b"a", b"a"], [b"a"]]
        assert len(broker.purgatory) == 0


@on_uvloop
async def test_a_fetch_is_answered_with_what_there_is_when_its_time_has_passed(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a"))
        asked = request({("orders", bytes(16)): [part()]}, min_bytes=1 << 20, wait_ms=30)
        began = asyncio.get_running_loop().time()
        response = await send(broker, asked)
        assert asyncio.get_running_loop().time() - began >= 0.029
        assert values(parts_of(response)[0]) == [b"a"]


@on_uvloop
async def test_a_fetch_that_need_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(bytes(500)))
        for min_bytes, max_bytes, wait_ms in (
            (0, 1 << 20, LONG_MS),
            (-1, 1 << 20, LONG_MS),
            (1 << 20, 100, LONG_MS),  # no more than that may come
            (1 << 20, 1 << 20, 0),
            (1 << 20, 1 << 20, -5),
        ):
            asked = request(
                {("orders", bytes(16)): [part()]},
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                wait_ms=wait_ms,
            )
            assert len(values(parts_of(await send(broker, asked))[0])) == 1


@on_uvloop
async def test_a_fetch_behind_the_active_segment_does_not_wait_for_appends(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        (log,) = topic.partitions
        append(log, batch(b"a"))
        log.roll(0)
        append(log, *[batch(bytes(500))] * 3)
        asked = request({("orders", bytes(16)): [part()]}, min_bytes=1500, wait_ms=LONG_MS)
        assert values(parts_of(await send(broker, asked))[0]) == [b"a"]


@on_uvloop
async def test_an_unknown_partition_is_answered_together_with_the_others(tmp_path: Path) -> None:
    """As in Kafka; else a client would ask again and again until its metadata is fresh."""
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        one.send(request({("orders", bytes(16)): [part(0), part(7)]}, wait_ms=LONG_MS), version=12)
        await until(lambda: len(broker.purgatory))
        append(topic.partitions[0], batch(b"a"))
        known, unknown = parts_of((await one.receive())[1])
        assert values(known) == [b"a"]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [12, LAST])
def test_a_fetch_of_a_topic_that_is_deleted_is_answered_at_once(
    tmp_path: Path, version: int
) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one:
            topic = await create(broker, "orders")
            other = await create(broker, "others")
            asked = {("orders", topic.topic_id): [part()], ("others", other.topic_id): [part()]}
            one.send(request(asked, wait_ms=LONG_MS), version=version)
            await until(lambda: len(broker.purgatory))
            await broker.topics.delete([topic.topic_id])
            gone, here = parts_of((await one.receive())[1])
            # Its id was known when the request came.
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert here.error_code == 0
            assert len(broker.purgatory) == 0

    main()


@on_uvloop
async def test_a_topic_of_the_same_name_is_another_to_who_asks_by_id(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        old = await create(broker, "orders")
        await broker.topics.delete([old.topic_id])
        new = await create(broker, "orders")
        for topic_id, code in (
            (old.topic_id, ErrorCode.UNKNOWN_TOPIC_ID),
            (new.topic_id, 0),
            (ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            response = await send(broker, request({("", topic_id): [part()]}), LAST)
            assert parts_of(response)[0].error_code == code


@on_uvloop
async def test_records_that_were_deleted_under_a_parked_fetch_are_out_of_range(
    tmp_path: Path,
) -> None:
    """Once it is answered: as in Kafka, a deletion of records wakes nobody."""
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        (log,) = topic.partitions
        append(log, batch(b"a"))
        asked = request({("orders", bytes(16)): [part()]}, min_bytes=100_000, wait_ms=LONG_MS)
        one.send(asked, version=12)
        await until(lambda: len(broker.purgatory))
        log.advance_start_offset(1)
        broker.purgatory.wake_all()
        (data,) = parts_of((await one.receive())[1])
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- the disk ---------------------------------------------------------------------------------


class ColdFile:
    """A file of which the page cache has nothing; reading it can be held up, or fail."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self.is_failing = self.fails_at_once = False
        self.threads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def hold(self) -> ColdFile:
        return self

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self.fails_at_once:
            raise DiskFailure(self._opened.path, OSError(errno.EIO, "Input/output error"))
        return None

    def read(self, position: int, size: int) -> bytes:
        if self.is_failing:
            raise DiskFailure(self._opened.path, OSError(errno.EIO, "Input/output error"))
        self.threads.append(threading.current_thread().name)
        data: bytes = self._opened.read(position, size)
        return data


@on_uvloop
async def test_records_that_are_not_in_memory_are_read_in_a_thread(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 3)
        for number, log in enumerate(topic.partitions):
            append(log, batch(b"%d" % number))
        cold = [ColdFile(topic.partitions[number].active.log) for number in (0, 2)]
        topic.partitions[0].active.log = cold[0]
        topic.partitions[2].active.log = cold[1]
        asked = request({("orders", bytes(16)): [part(0), part(1), part(2)]})
        found = [values(data) for data in parts_of(await send(broker, asked))]
        assert found == [[b"0"], [b"1"], [b"2"]]
        for one in cold:
            assert one.threads[-1].startswith("read")
        change = {"num.io.threads": "2"}
        await broker.configs.alter("", lambda present: {**present, **change}, validate_only=False)
        found = [values(data) for data in parts_of(await send(broker, asked))]
        assert found == [[b"0"], [b"1"], [b"2"]]


@on_uvloop
async def test_indexes_and_headers_that_are_not_in_memory_are_read_in_a_thread_too(
    tmp_path: Path,
) -> None:
    """Indexes and headers of a log that nobody has read since the start."""
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        for log in topic.logs:
            for value in (b"a", b"b", b"c"):
                append(log, batch(value * 5_000))
                log.roll(1_000)
    async with live(tmp_path) as broker:
        topic = broker.topics.get("orders")
        assert topic is not None
        first = topic.logs[0]
        cold = ColdFile(first.segments[1].log)
        first.segments[1].log = first.segments[1]._batches.file = cold
        loads: list[str] = []
        entries = first.segments[1].offset_index.entries
        load = entries._read
        entries._read = lambda: (loads.append(threading.current_thread().name), load())[1]
        asked = request({("orders", bytes(16)): [part(0, 1), part(1, 0)]}, wait_ms=LONG_MS)
        found = [values(data) for data in parts_of(await send(broker, asked))]
        assert found == [[b"b" * 5_000], [b"a" * 5_000]]
        assert loads and all(name.startswith("read") for name in loads)
        assert cold.threads


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_disk_that_fails_is_reported_for_its_partition(tmp_path: Path, is_cached: bool) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker:
            topic = await create(broker, "orders", 2)
            for log in topic.partitions:
                append(log, batch(b"a"))
            cold = ColdFile(topic.partitions[0].active.log)
            topic.partitions[0].active.log = cold
            asked = request({("orders", bytes(16)): [part(0), part(1)]})
            context = context_of(broker, 12)
            cold.fails_at_once, cold.is_failing = is_cached, not is_cached
            # The batch is found by its header, which is read before the disk fails.
            response = fetch.handle(broker, context, asked)
            if not isinstance(response, FetchResponse):
                response = await response
            failed, fine = parts_of(response)
            cold.fails_at_once = cold.is_failing = False
            assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert values(fine) == [b"a"]

    main()


@pytest.mark.parametrize("version", [12, LAST])
@pytest.mark.parametrize("secured", [False, True])
@on_uvloop
async def test_many_partitions_are_answered_as_few_are(
    version: int, secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
    async with live(tmp_path, authorizer if secured else None) as broker, client(broker) as one:
        there, hidden = await create(broker, "there", 3), await create(broker, "hidden", 2)
        append(there.logs[1], batch(b"a"))
        if secured:
            may_read = Acl(
                ResourceKind.TOPIC, "there", PatternType.LITERAL, "User:ANONYMOUS", "*",
                AclOperation.READ, Permission.ALLOW,
            )  # fmt: skip
            await broker.security.acls.create([may_read])
        ids = {topic.name: topic.topic_id for topic in (there, hidden)}
        parts = [part(number) for number in (1, 0, 7, 2, -1)]
        named = {
            (name, ids.get(name, bytes([rank]) * 16)): parts
            for rank, name in enumerate(("gone", "there", "hidden", "made up"), 1)
        }

        async def answers() -> list[FetchResponse]:
            first = await one.ask(request(named, session=(0, 0)), version=version)
            session_id = first.session_id
            again = request(dict(reversed(named.items())), session=(session_id, 1))
            alone = request(named, session=(0, -1))
            asked = [await one.ask(again, version=version), await one.ask(alone, version=version)]
            return [replace(answer, session_id=0) for answer in (first, *asked)]

        expected = await answers()
        monkeypatch.setattr(fetch, "_PLANNED_AT_ONCE_MAX", 0)
        assert await answers() == expected
        assert {data.error_code for data in parts_of(expected[0])} > {ErrorCode.NONE}
