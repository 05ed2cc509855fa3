"""Logs in old message formats beside Apache Kafka: the same files, the same answers.

Both brokers create the topics and are stopped; then both find the same segments, of magic 0, 1
and 2, in the place of their own, without any index or checkpoint, and recover them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_tool
from odradek.protocol.batches import DELETE_HORIZON_BIT, MAGIC, BatchHeader, Record
from odradek.protocol.compression import Codec
from odradek.protocol.legacy import decode_stored
from odradek.storage.real_files import RealFileSystem
from odradek.storage.scan import whole_batches
from odradek.storage.segment import INDEX, LOG, TIME_INDEX, file_name
from tests.broker.test_core_against_kafka import Peer
from tests.compat.clients import Confluent, ConsoleTools
from tests.storage.old_logs import (
    FORMATS,
    NOW_MS,
    Written,
    all_records,
    lay_segments,
    random_log,
    write,
)
from tests.support.asking import create_topics
from tests.support.forking import ForkedOdradek
from tests.support.requests import creatable, fetching, listing_offsets
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

PATIENCE_S = 60.0
EPOCH_UNKNOWN = -1
FILES_ARE_OF_MS = 1
FS = RealFileSystem()
Logs = Mapping[str, Sequence[Sequence[Written]]]


def continued(*magics: Sequence[int]) -> list[list[Written]]:
    """Segments one after the other, each of some formats."""
    segments: list[list[Written]] = []
    for some in magics:
        first = segments[-1][-1].last_offset + 1 if segments else 0
        segments.append(random_log(len(segments), 60, some, first))
    return segments


def partly_obsolete(magic: int, first: int = 0, append_time: int | None = None) -> list[Written]:
    """One message and one wrapper of each codec, of which a cleaning keeps a part; then the last.

    Key `a` goes but for its last record, and so do records without a key.
    """
    written: list[Written] = []

    def add(codec: Codec, *entries: tuple[bytes | None, bytes | None]) -> None:
        start = written[-1].last_offset + 2 if written else first
        records = [
            Record(start + at, NOW_MS + start - at, key, value)
            for at, (key, value) in enumerate(entries)
        ]
        written.append(write(magic, codec, records, append_time))

    add(Codec.NONE, (b"a", b"1"))
    add(Codec.NONE, (b"gone", None))
    add(Codec.NONE, (None, b"no key"))
    for codec in FORMATS[magic][1:]:
        kept = (b"kept%d" % codec, b"v")
        add(codec, (b"a", b"2"), kept, (b"tombstone%d" % codec, None), (b"a", b"x" * 30))
        add(codec, (b"a", b"3"), (None, b"no key"))
        add(codec, (b"whole%d" % codec, b"1"), (b"too%d" % codec, b"2"))
    add(Codec.NONE, (b"a", b"last"))
    return written


def tail(before: Sequence[Written]) -> list[Written]:
    """An active segment, which no cleaning touches."""
    return [write(2, Codec.NONE, [Record(before[-1].last_offset + 1, NOW_MS, b"tail", b"t")])]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 4,))


SERVED: Logs = {
    "v0": continued((0,)),
    "v1": continued((1,)),
    "mixed": continued((0, 1, 2)),
    "upgraded": continued((0,), (0, 1), (1,), (1, 2), (2,)),
    "downgraded": continued((2,), (1,)),
}
# A last message of each kind that is cut off, and one in the middle with a flipped bit.
INTACT = random_log(9, 40, (0, 1, 2))
HIT = {
    f"v{magic}-{codec.label}": write(
        magic, codec, [Record(INTACT[-1].last_offset + 1, NOW_MS, b"key", b"v" * 90)]
    )
    for magic in (0, 1)
    for codec in FORMATS[magic]
}
DAMAGED: Logs = {
    **{
        f"torn-{name}": [[*INTACT, replace(one, data=one.data[:-7])]] for name, one in HIT.items()
    },
    **{
        f"flipped-{name}": [[*INTACT, replace(one, data=flipped(one.data)), *tail([one])]]
        for name, one in HIT.items()
    },
}
ENDS = {
    "clean-v0": partly_obsolete(0),
    "clean-v1": partly_obsolete(1),
    "clean-appended": partly_obsolete(1, append_time=NOW_MS + 77),
}
CLEANED: Logs = {name: [written, tail(written)] for name, written in ENDS.items()}
LOGS: Logs = {**SERVED, **DAMAGED, **CLEANED}
CONFIGS = {"retention.ms": "-1"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": str(10**9),
}
SETTINGS = {"log.cleaner.backoff.ms": "300"}


def offset_at(peer: Peer, topic: str, timestamp: int) -> Any:
    """Ask for one offset."""
    return peer.ask(listing_offsets({topic: [0]}, timestamp), 9).topics[0].partitions[0]


def with_old_logs(broker: OdradekProcess | KafkaProcess) -> Peer:
    """Start a broker that finds the logs of its topics in old formats, after a crash it seems."""
    peer = Peer(broker.port)
    broker.start()
    wanted = [
        creatable(name, configs=COMPACTED if name in CLEANED else CONFIGS) for name in LOGS
    ]
    create_topics(peer, *wanted)
    await_topics(peer)
    broker.stop()
    for name, segments in LOGS.items():
        directory = broker.data / f"{name}-0"
        lay_segments(FS, directory, segments)
        # Kafka takes a segment without timestamps for one as old as its file. Were that later
        # than the time that is looked for, it would look in no other, and find nothing.
        for path in directory.glob("*" + LOG):
            FS.set_modified_ms(path, FILES_ARE_OF_MS)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
    await_topics(peer)
    return peer


def await_topics(peer: Peer) -> None:
    for name in LOGS:
        wait_until(lambda name=name: offset_at(peer, name, -1).error_code == 0)  # type: ignore[misc]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[OdradekProcess, KafkaProcess]]:
    folder = tmp_path_factory.mktemp("old")
    ours = ForkedOdradek(folder / "odradek", SETTINGS)
    theirs = KafkaProcess(folder / "kafka", SETTINGS)
    try:
        with_old_logs(ours)
        with_old_logs(theirs)
        yield ours, theirs
    finally:
        ours.stop()
        theirs.stop()


@pytest.fixture
def peers(brokers: tuple[OdradekProcess, KafkaProcess]) -> tuple[Peer, Peer]:
    return Peer(brokers[0].port), Peer(brokers[1].port)


@pytest.mark.parametrize("name", SERVED)
def test_offsets_by_time(peers: tuple[Peer, Peer], name: str) -> None:
    records = all_records(chain(*SERVED[name]))
    timestamps = sorted({record.timestamp for record in records} - {-1})
    probes = [*timestamps[::3], *(timestamp + 1 for timestamp in timestamps[::-5])]
    for timestamp in (-2, -3, -4, FILES_ARE_OF_MS + 1, *probes, NOW_MS * 2):
        ours, theirs = (offset_at(peer, name, timestamp) for peer in peers)
        assert ours == theirs, (timestamp, ours, theirs)
    # The current epoch differs: it counts what a broker has lived through.
    ends = [replace(offset_at(peer, name, -1), leader_epoch=EPOCH_UNKNOWN) for peer in peers]
    assert ends[0] == ends[1]
    assert ends[0].offset == records[-1].offset + 1


@pytest.mark.parametrize("name", SERVED)
def test_fetched_bytes(peers: tuple[Peer, Peer], name: str) -> None:
    end = SERVED[name][-1][-1].last_offset + 1
    for offset in range(0, end, 11):
        ours, theirs = (
            peer.ask(fetching(name, offset=offset, size_max=5000), 12).responses[0].partitions[0]
            for peer in peers
        )
        assert len(ours.records) > 0
        assert ours == theirs, offset


@pytest.mark.parametrize("name", DAMAGED)
def test_a_recovery_leaves_the_intact_messages(
    brokers: tuple[OdradekProcess, KafkaProcess], name: str
) -> None:
    for broker in brokers:
        assert offset_at(Peer(broker.port), name, -1).offset == INTACT[-1].last_offset + 1
        assert [records for _, records in stored(broker.data, name)] == [
            list(one.records) for one in INTACT
        ]
        assert segment_path(broker.data, name).stat().st_size == sum(len(i.data) for i in INTACT)


@pytest.mark.parametrize("name", [name for name in SERVED if len(SERVED[name]) > 1])
def test_indexes_that_a_recovery_builds(
    brokers: tuple[OdradekProcess, KafkaProcess], name: str
) -> None:
    ours, theirs = (
        {
            path.name: path.read_bytes()
            for path in (broker.data / f"{name}-0").iterdir()
            if path.suffix in (INDEX, TIME_INDEX) and is_sealed(name, path)
        }
        for broker in brokers
    )
    assert len(ours) == 2 * (len(SERVED[name]) - 1)
    assert ours == theirs


def is_sealed(name: str, path: Path) -> bool:
    """Tell an index that is done from one of full size, to which Kafka will append."""
    return path.stem != file_name(SERVED[name][-1][0].records[0].offset)


@pytest.mark.parametrize("client", [ConsoleTools(), Confluent()], ids=lambda one: one.name)
def test_clients_read_old_formats(
    brokers: tuple[OdradekProcess, KafkaProcess], client: ConsoleTools | Confluent
) -> None:
    # These two want text in every key and value.
    wanted = [r for r in all_records(chain(*SERVED["upgraded"])) if r.value is not None]
    seen = read_by(client, brokers[0].bootstrap, "upgraded")
    assert [(one[0], one[1], one[2]) for one in seen if one[2] is not None] == [
        (r.offset, r.key, r.value) for r in wanted
    ]
    assert seen == read_by(client, brokers[1].bootstrap, "upgraded")


def read_by(
    client: ConsoleTools | Confluent, bootstrap: str, topic: str
) -> list[tuple[int, bytes, bytes | None]]:
    """Read a topic from its beginning by the console consumer, or by librdkafka."""
    count = len(all_records(chain(*SERVED[topic])))
    if isinstance(client, Confluent):
        return read_by_librdkafka(bootstrap, topic, count)
    shown = ("print.key", "print.offset")
    found = kafka_tool(
        ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
        + ["--topic", topic, "--from-beginning"]
        + ["--max-messages", str(count), "--timeout-ms", str(int(PATIENCE_S * 1000))]
        + [word for name in shown for word in ("--formatter-property", f"{name}=true")]
    )
    seen = []
    for line in found.stdout.splitlines():
        offset, key, value = line.encode().split(b"\t")
        seen.append((int(offset[7:]), key, None if value == b"null" else value))
    return seen


def read_by_librdkafka(
    bootstrap: str, topic: str, count: int
) -> list[tuple[int, bytes, bytes | None]]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "old", "check.crcs": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < count and time.monotonic() < deadline:
        for record in consumer.consume(count - len(seen), 1.0):
            assert record.error() is None, record.error()
            seen.append((record.offset() or 0, record.key() or b"", record.value()))
    consumer.close()
    return seen


# --- cleaning ----------------------------------------------------------------------------------


def stored(data: Path, name: str) -> list[tuple[BatchHeader, list[Record]]]:
    """Read the first segment of a log from its file."""
    octets = memoryview(segment_path(data, name).read_bytes())
    return [(header, decode_stored(octets, at)) for at, header in whole_batches(octets)]


def segment_path(data: Path, name: str) -> Path:
    return data / f"{name}-0" / (file_name(0) + LOG)


def is_cleaned(data: Path, name: str) -> bool:
    checkpoint = data / "cleaner-offset-checkpoint"
    end = CLEANED[name][-1][0].records[0].offset
    return checkpoint.exists() and f"{name} 0 {end}\n" in checkpoint.read_text()


@pytest.mark.parametrize("name", CLEANED)
def test_a_cleaning_leaves_what_kafkas_does(
    brokers: tuple[OdradekProcess, KafkaProcess], name: str
) -> None:
    for broker in brokers:
        wait_until(lambda broker=broker: is_cleaned(broker.data, name))  # type: ignore[misc]
    ours, theirs = (layout(stored(broker.data, name)) for broker in brokers)
    assert [(attributes, records) for attributes, _, records in ours] == [
        (attributes, records) for attributes, _, records in theirs
    ]
    for (_, (first, last), records), (_, their_offsets, _) in zip(ours, theirs, strict=True):
        # Ours keeps the offsets that a wrapper stood for, Kafka's those of what is left.
        assert their_offsets == (records[0].offset, records[-1].offset)
        assert first <= their_offsets[0] and last >= their_offsets[1]


def layout(
    batches: Sequence[tuple[BatchHeader, list[Record]]],
) -> list[tuple[int, tuple[int, int], list[Record]]]:
    """Tell attributes, offsets and records of the batches that wrappers became.

    Messages that were in none come one by one, for here several of them share a batch.
    """
    found: list[tuple[int, tuple[int, int], list[Record]]] = []
    for header, records in batches:
        assert (header.magic, header.leader_epoch, header.producer_id) == (MAGIC, -1, -1)
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert header.has_delete_horizon == any(record.value is None for record in records)
        if header.codec == Codec.NONE:
            own = header.attributes & ~DELETE_HORIZON_BIT
            found += [(own, (r.offset, r.offset), [r]) for r in records]
        else:
            offsets = header.base_offset, header.last_offset
            found.append((header.attributes, offsets, records))
    return found
