"""Hostile records in the internal topics: what is sound beside them is loaded, and served.

A client with the right to may write anything there, and adopted files may hold anything.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from struct import Struct
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.coordination.effects import Describable, Producer
from odradek.broker.coordination.machine import Codec, Machine
from odradek.broker.coordination.runtime import Runtime
from odradek.broker.coordination.seams import KeyValue, StoredBatch, Time
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.records import CommittedOffset, OffsetRecord, encode_record
from odradek.broker.shares import state_records
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareSnapshot, ShareState
from odradek.broker.shares.state_shard import StateConfig, StateShard
from odradek.broker.topics import names as topic_names
from odradek.broker.transactions import records as transaction_records
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.records import TransactionRecord
from odradek.broker.transactions.shard import TransactionShard
from odradek.broker.transactions.state import Transaction
from odradek.protocol.batches import Record, batch_crc, encode_batch, read_header, replace_section
from odradek.protocol.compiler import encode
from odradek.protocol.compression import Codec as Compression
from odradek.protocol.compression import compress
from odradek.protocol.control import encode_end_txn_marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_records import ConsumerGroupMetadataValue
from odradek.protocol.messages.describe_groups import DescribeGroupsResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.list_groups import ListGroupsResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponse
from odradek.protocol.records_plain import encode_varint
from odradek.protocol.schema import info_of
from odradek.storage.log import Log
from odradek.storage.transactions import Marker
from tests import profiles
from tests.broker.group_fakes import FakeTopics, ManualLoop
from tests.broker.live import counting_turns, live, on_uvloop
from tests.protocol.strategies import Strategy, messages

T = TypeVar("T")
INT16 = Struct(">h")
MINE = "mine"
NOW_MS = 1_700_000_000_000
COMMITTED = CommittedOffset(7, 3, "m", NOW_MS, -1, bytes(16))


class PoisonedTopic:
    """An internal topic of one partition whose records a test has chosen."""

    partition_count = 1

    def __init__(self, stored: Sequence[StoredBatch | Marker]) -> None:
        self._stored = stored

    def leads(self, partition: int) -> bool:
        return True

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        producer: Producer | None = None,
        *,
        is_awaited: bool = True,
    ) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def append_marker(self, partition: int, marker: Marker) -> asyncio.Future[None]:
        return self.append(partition, ())

    async def fetch(self, partition: int) -> None:
        """Do nothing: there is no bucket."""

    def replay(self, partition: int) -> Iterable[StoredBatch | Marker]:
        return self._stored


@dataclass(frozen=True)
class Asker:
    """A request, as coordinators see one."""

    api_version: int = 1
    client_id: str = "asker"
    client_host: str = "/127.0.0.1"
    describable: Describable | None = None


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS


def load(
    stored: Sequence[StoredBatch | Marker], codec: Codec, machine: Callable[[], Machine]
) -> Machine:
    """Load the machine of a topic with these records as a broker does; return it serving."""

    async def main() -> Machine:
        runtime: Runtime[Any] = Runtime(
            "things", PoisonedTopic(stored), codec, lambda partition: machine(),
            time=Time(StillClock(), ManualLoop()),
        )  # fmt: skip
        await runtime.load()
        found = runtime.machine_at(0)
        assert not isinstance(found, ErrorCode), found
        runtime.close()
        return found

    return without_traces(lambda: asyncio.run(main()))


def without_traces(run: Callable[[], T]) -> T:
    """Run, and see that no record was left out because of an error that nobody had in mind."""
    traces: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = traces.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        result = run()
    finally:
        logging.getLogger().removeHandler(handler)
    unexpected = [one for one in traces if one.exc_info]
    assert not unexpected, unexpected[0].getMessage()
    return result


# --- records -------------------------------------------------------------------------------------


def few_names(name: str) -> Strategy | None:
    """Have hostile records be about the same few things."""
    if name in ("group", "group_id", "transactional_id", "member_id", "leader"):
        return st.sampled_from(["g", "g", "h", ""])
    if name in ("group_instance_id", "instance_id"):
        return st.sampled_from([None, "i", "j"])
    if name == "transaction_status":
        return st.integers(-1, 8)
    if name in ("topic", "topic_id"):
        return st.just("t") if name == "topic" else st.just(bytes(16))
    return None


def of_module(*modules: str) -> Strategy:
    """Return keys and values of a topic's messages, in all combinations."""
    classes = [cls for module in modules for cls in message_classes(module)]
    keys = [cls for cls in classes if cls.__name__.endswith("Key")]
    values = [cls for cls in classes if cls.__name__.endswith("Value")]

    def encoded(cls: type, version: int) -> Strategy:
        made = messages(cls, version, few_names)
        return made.map(lambda one: INT16.pack(version) + encode(one, version))

    def values_of(key: type) -> list[type]:
        fitting = [cls for cls in values if cls.__name__[:-5] == key.__name__[:-3]]
        return fitting or values

    pairs = [
        st.tuples(encoded(key, kind), encoded(value, version))
        for key in keys
        for kind in info_of(key).versions
        for value in values_of(key)
        for version in info_of(value).versions
    ]
    sound = st.one_of(pairs)
    return st.one_of(
        sound,
        sound,
        sound.map(lambda one: (one[0], None)),
        st.tuples(sound, st.integers(0, 40)).map(lambda one: (one[0][0], one[0][1][: one[1]])),
        st.tuples(sound, st.integers(0, 20)).map(lambda one: (one[0][0][: one[1]], one[0][1])),
        st.tuples(sound, st.integers(0, 60), st.integers(0, 255)).map(_flipped),
        st.tuples(sound, sound).map(lambda two: (two[0][0], two[1][1])),
        st.tuples(st.binary(max_size=30), st.none() | st.binary(max_size=60)),
    )


def _flipped(one: tuple[KeyValue, int, int]) -> KeyValue:
    (key, value), at, byte = one
    assert value is not None
    at %= len(value)
    return key, value[:at] + bytes([byte]) + value[at + 1 :]


def histories(pairs: Strategy) -> Strategy:
    batches = st.builds(
        StoredBatch, st.lists(pairs, min_size=1, max_size=6), st.sampled_from([-1, -1, 5])
    )
    markers = st.builds(
        Marker, st.just(5), st.integers(0, 3), is_commit=st.booleans(),
        coordinator_epoch=st.just(0), timestamp=st.just(0),
    )  # fmt: skip
    return st.lists(st.one_of(batches, batches, markers), max_size=3)


def poison(test: Callable[..., None]) -> Callable[..., None]:
    return settings(
        max_examples=profiles.examples(100), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )(test)  # fmt: skip


TRANSACTION_CODEC = Codec(
    lambda record: transaction_records.encode_record(record, 2),
    transaction_records.decode_record,
)
STATE_CODEC = Codec(state_records.encode_record, state_records.decode_record)


GROUP_MODULES = ("group_metadata", "consumer_group_records", "share_group_metadata")


@poison
@given(histories(of_module(*GROUP_MODULES)), histories(of_module(*GROUP_MODULES)))
def test_groups_are_loaded_and_served_beside_hostile_records(
    before: list[StoredBatch | Marker], after: list[StoredBatch | Marker]
) -> None:
    mine = [
        encode_record(OffsetRecord(MINE, "t", 0, COMMITTED)),
        encode_record(
            ConsumerRecord(Kind.GROUP, "mine too", "", ConsumerGroupMetadataValue(epoch=3))
        ),
    ]

    async def main() -> None:
        loop = ManualLoop()
        groups = GroupCoordinator(
            PoisonedTopic([*before, StoredBatch(mine), *after]), FakeTopics(), GroupConfig(),
            time=Time(StillClock(), loop),
        )  # fmt: skip
        await groups.load()
        _ask_about_groups(groups)
        asked = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        groups.consumer_heartbeat(asked, Asker())
        groups.join(
            JoinGroupRequest(
                group_id="h", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
                member_id="", protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            Asker(),
        )
        await loop.advance(3_600)
        _ask_about_groups(groups)
        found = groups.fetch(
            OffsetFetchRequestGroup(group_id=MINE, topics=None), require_stable=False
        )
        assert found.topics[0].partitions[0].committed_offset == COMMITTED.offset
        for name in ("g", "h", ""):
            groups.delete(name)
        groups.close()

    without_traces(lambda: asyncio.run(main()))


def _ask_about_groups(groups: GroupCoordinator) -> None:
    """Ask all that can be asked of groups, and encode the answers."""
    names = ("g", "h", "", MINE, "mine too")
    encode(ListGroupsResponse(error_code=0, groups=groups.list_groups((), ())[1]), 5)
    classic = [groups.describe(name, api_version=6) for name in names]
    encode(DescribeGroupsResponse(groups=classic), 6)
    consumers = [groups.describe_consumers(name) for name in names]
    encode(ConsumerGroupDescribeResponse(groups=consumers), 1)
    fetched = [
        groups.fetch(OffsetFetchRequestGroup(group_id=name, topics=None), require_stable=True)
        for name in names
    ]
    encode(OffsetFetchResponse(groups=fetched), 8)


@poison
@given(histories(of_module("transaction_log")), histories(of_module("transaction_log")))
def test_transactions_are_loaded_beside_hostile_records(
    before: list[StoredBatch | Marker], after: list[StoredBatch | Marker]
) -> None:
    mine = Transaction(producer_id=9, timeout_ms=1_000, updated_ms=5, epoch=2)
    record = TRANSACTION_CODEC.encode(TransactionRecord(MINE, mine))
    ids = count(1_000)
    shard = load(
        [*before, StoredBatch([record]), *after],
        TRANSACTION_CODEC,
        lambda: TransactionShard(TransactionConfig(), lambda: 2, lambda: next(ids)),
    )
    assert isinstance(shard, TransactionShard)
    assert shard.entries[MINE].value == mine
    shard.abort_timed_out(NOW_MS)
    shard.expire(NOW_MS)


@poison
@given(histories(of_module("share_group_state")), histories(of_module("share_group_state")))
def test_share_states_are_loaded_beside_hostile_records(
    before: list[StoredBatch | Marker], after: list[StoredBatch | Marker]
) -> None:
    key, state = SharePartitionKey(MINE, bytes(15) + b"\1", 0), ShareState(1, 2, 3, 4, 5)
    record = STATE_CODEC.encode(ShareSnapshot(key, state))
    shard = load(
        [*before, StoredBatch([record]), *after],
        STATE_CODEC,
        lambda: StateShard(StateConfig(), lambda topic_id: 1),
    )
    assert isinstance(shard, StateShard)
    assert shard.states[key] == state
    shard.snapshot_cold(NOW_MS)


# --- a whole broker ------------------------------------------------------------------------------

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
INTERNAL = (
    topic_names.CONSUMER_OFFSETS,
    topic_names.TRANSACTION_STATE,
    topic_names.SHARE_GROUP_STATE,
)
BOMB_BYTES = 60 << 20


def _section(records: int, header_count: int = 0) -> bytes:
    """Return records as small as they come, without keys, and one with headers as small."""
    found = b"\x0c\0\0\0\x01\x01\0" * records
    if header_count:
        body = b"\0\0\0\x01\x01" + encode_varint(header_count) + b"\0\x01" * header_count
        found += encode_varint(len(body)) + body
    return found


def hostile_batches() -> Iterator[bytes]:
    """Yield batches that no coordinator writes, whose base offsets are 0."""
    plain = encode_batch([Record(0, 5, b"\0\1", b"v")])
    header = read_header(plain)

    def packed(section: bytes, count: int) -> bytes:
        made = replace_section(header, compress(Compression.ZSTD, section), Compression.ZSTD)
        return _with(made, 57, ">i", count)

    few = BOMB_BYTES // 140
    yield packed(_section(few), few)  # half a million records
    yield packed(_section(0, BOMB_BYTES // 2 - 20), 1)  # millions of headers
    yield packed(bytes(BOMB_BYTES), 1)  # no record at all
    yield packed(b"\x80" * 100_000, 2**31 - 1)
    yield _with(plain, 57, ">i", 2**31 - 1)  # claims records that it does not have
    yield _with(plain, 21, ">h", 0x10)  # transactional, of no producer
    yield encode_batch([Record(0, 5, None, None), Record(1, 5, b"", b"")])
    for kind in (-1, 0, 1, 2, 3, 5, 6, 8, 10, 11, 15, 16, 17, 18, 19, 21, 22, 23, 24, 32_767):
        yield encode_batch(
            [Record(at, 5, INT16.pack(kind) + bytes(at), bytes(at)) for at in range(30)]
        )
    for commit in (True, False):
        yield encode_end_txn_marker(
            commit=commit, timestamp=-1, producer_id=-7, producer_epoch=-3,
            coordinator_epoch=-1, base_offset=0,
        )  # fmt: skip


def _with(data: bytes | bytearray, position: int, layout: str, value: int) -> bytes:
    """Return a batch with a field of its header changed, and its CRC as it must be."""
    made = bytearray(data)
    struct.pack_into(layout, made, position, value)
    struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return bytes(made)


def _put(log: Log, data: bytes) -> None:
    """Append a batch below all checks."""
    made = bytearray(data)
    struct.pack_into(">q", made, 0, log.log_end_offset)
    header = read_header(made)
    last_offset = max(header.last_offset, log.log_end_offset)
    log.active.append((made,), len(made), last_offset, 0, 4096)
    log.log_end_offset = last_offset + 1


@pytest.mark.slow
@on_uvloop
async def test_a_broker_starts_and_serves_what_is_sound_in_poisoned_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states = SharePartitionKey(MINE, bytes(15) + b"\1", 0), ShareState(1, 2, 3, 4, 5)
    mine = Transaction(producer_id=9, timeout_ms=1_000, updated_ms=5, epoch=2)
    now_ms = time.time_ns() // 1_000_000
    sound = {
        topic_names.CONSUMER_OFFSETS: encode_record(
            OffsetRecord(MINE, "t", 0, COMMITTED._replace(commit_timestamp_ms=now_ms))
        ),
        topic_names.TRANSACTION_STATE: TRANSACTION_CODEC.encode(TransactionRecord(MINE, mine)),
        topic_names.SHARE_GROUP_STATE: STATE_CODEC.encode(ShareSnapshot(*states)),
    }
    poison_batches = list(hostile_batches())
    async with live(tmp_path, SETTINGS) as broker:
        for name in INTERNAL:
            topic = await broker.topics.internal(name)
            for log in topic.logs:
                for _ in range(2):
                    for one in poison_batches:
                        _put(log, one)
                    key, value = sound[name]
                    one = Record(0, 5, key, value)
                    _put(log, encode_batch([one], codec=Compression.GZIP))
    caplog.clear()
    begun_s = time.process_time()
    async with live(tmp_path, SETTINGS) as broker:
        async with counting_turns() as turns:
            await asyncio.wait_for(broker.loading, 300)
            assert turns() > 500  # clients were served meanwhile
        assert time.process_time() - begun_s < 200
        found = broker.groups.fetch(
            OffsetFetchRequestGroup(group_id=MINE, topics=None), require_stable=False
        )
        assert found.topics[0].partitions[0].committed_offset == COMMITTED.offset
        assert broker.transactions.describe(MINE).producer_id == mine.producer_id
        assert states in broker.shares.states.known()
        for coordinator in (broker.groups.runtime, broker.transactions._runtime):
            assert coordinator.problem is ErrorCode.NONE
    lines = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert 0 < len(lines) < 25 * len(INTERNAL)
    assert not any(one.exc_info for one in lines)
