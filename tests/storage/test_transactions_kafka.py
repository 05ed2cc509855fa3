"""What Kafka wrote in transactions is read, rebuilt and served as Kafka did it."""

from __future__ import annotations

import itertools
import random
import shutil
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.processes import KafkaProcess, kafka_tool
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import iterate_batches, patch_base_offset_and_epoch
from odradek.protocol.frames import encode_request
from odradek.storage.log import Log
from odradek.storage.producers import ProducerState
from odradek.storage.readable_log import LogIdentity
from odradek.storage.reading import aborted_between, aborted_within
from odradek.storage.real_files import RealFileSystem
from odradek.storage.recovery import Checkpointed, load_log
from odradek.storage.segment import SNAPSHOT, TXN_INDEX
from odradek.storage.transactions import read_marker
from odradek.storage.validation import check_batch
from tests.storage.transactional import committed_offsets
from tests.support.frames import read_frame, response_to
from tests.support.requests import fetching

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # Java writes what is read

FS = RealFileSystem()
# The smallest segment that Kafka lets a topic have.
SEGMENT_BYTES = 1 << 20
# On a busy machine Kafka loses a request to itself, and sends it again after 30 s.
WAIT_S = 100
FETCH_VERSION = 12  # the last one that names topics
READ_COMMITTED = 1
TOPICS = {
    "created": {},
    "stamped": {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
}
STAMPED = replace(TopicConfig(), message_timestamp_type="LogAppendTime", compression_type="gzip")


@dataclass(frozen=True, slots=True)
class Written:
    """A partition's directory as a stopped Kafka left it, and what Kafka had said of it."""

    directory: Path
    committed: list[int]  # the offsets of what its read_committed consumer saw
    last_stable_offset: int
    log_end_offset: int
    fetched: list[Fetched]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What Kafka answered to a read_committed fetch."""

    offset: int
    size_max: int
    size: int
    aborted: list[tuple[int, int]]  # producer id, first offset
    last_stable_offset: int


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Partitions with transactions of all kinds, one of them open, by topic."""
    kafka = KafkaProcess(
        tmp_path_factory.mktemp("kafka"),
        {
            "transaction.max.timeout.ms": "3600000",
            # On a busy machine Kafka's requests to itself can be lost for request.timeout.ms.
            "transaction.partition.verification.enable": "false",
        },
    )
    kafka.start()
    try:
        _create_topics(kafka)
        # librdkafka keeps its epoch; the Java client has a new one for each transaction.
        open_ones = [_write_transactions(kafka, topic) for topic in TOPICS]
        said = {topic: (*_ask(kafka, topic), _fetch_everywhere(kafka, topic)) for topic in TOPICS}
    finally:
        kafka.stop()
    del open_ones
    return {topic: Written(kafka.data / f"{topic}-0", *answers) for topic, answers in said.items()}


def _create_topics(kafka: KafkaProcess) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics(
        [
            NewTopic(name, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES), **config})
            for name, config in TOPICS.items()
        ],
        request_timeout=WAIT_S,
    )
    for one in made.values():
        one.result(WAIT_S)


def _write_transactions(kafka: KafkaProcess, topic: str) -> list[Producer]:
    """Interleave the transactions of three producers with plain batches; leave one open."""
    source = random.Random(topic)
    settings = {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0}
    plain = Producer({**settings, "enable.idempotence": True})
    producers = []
    for number in range(3):
        one = Producer(
            {
                **settings,
                "transactional.id": f"{topic}-{number}",
                "transaction.timeout.ms": 3_600_000,
            }
        )
        one.init_transactions(WAIT_S)
        producers.append(one)
    is_open = [False] * 3
    for _ in range(120):
        number = source.randrange(4)
        if number == 3:
            _send(plain, topic, source)
        elif not is_open[number]:
            producers[number].begin_transaction()
            _send(producers[number], topic, source)
            is_open[number] = True
        elif source.random() < 0.5:
            _send(producers[number], topic, source)
        else:
            _end(producers[number], source.random() < 0.5)
            is_open[number] = False
    for number in range(3):
        if is_open[number]:
            _end(producers[number], number == 0)
    _java_transactions(kafka, topic)
    producers[0].begin_transaction()
    _send(producers[0], topic, source)
    _send(plain, topic, source)
    producers[1].begin_transaction()
    _send(producers[1], topic, source)
    _end(producers[1], False)
    _send(plain, topic, source)
    return [plain, *producers]


def _send(producer: Producer, topic: str, source: random.Random) -> None:
    size = source.choice([10, 1_000, 100_000])
    for at in range(source.randrange(1, 4)):
        producer.produce(topic, key=b"%d" % at, value=source.randbytes(size), partition=0)
    assert producer.flush(120) == 0


def _end(producer: Producer, commits: bool) -> None:
    if commits:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def _java_transactions(kafka: KafkaProcess, topic: str) -> None:
    perf = "org.apache.kafka.tools.ProducerPerformance"
    options = f"--topic {topic} --num-records 60 --record-size 30000 --throughput 600"
    transactions = f"--transactional-id java-{topic} --transaction-duration-ms 10"
    kafka_tool(
        [
            perf,
            *options.split(),
            *transactions.split(),
            "--producer-props",
            f"bootstrap.servers={kafka.bootstrap}",
        ]
    )


def _ask(kafka: KafkaProcess, topic: str) -> tuple[list[int], int, int]:
    """Ask Kafka what a read_committed consumer sees, for the last stable offset and the end."""
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def latest(level: IsolationLevel) -> int:
        found = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
        offset: int = found[partition].result(WAIT_S).offset
        return offset

    stable, end = latest(IsolationLevel.READ_COMMITTED), latest(IsolationLevel.READ_UNCOMMITTED)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets: list[int] = []
    while True:
        message: Any = consumer.poll(WAIT_S)
        assert message is not None, "no more messages, and no end"
        if message.error():
            break
        offsets.append(message.offset())
    consumer.close()
    return offsets, stable, end


def _fetch_everywhere(kafka: KafkaProcess, topic: str) -> list[Fetched]:
    """Fetch from every offset up to the last stable one, little and much."""
    found: list[Fetched] = []
    with socket.create_connection(("127.0.0.1", kafka.port), 20) as client:
        while not found or found[-1].offset < found[-1].last_stable_offset:
            offset = found[-1].offset + 1 if found else 0
            for size_max in (1, 150_000):
                request = fetching(topic, offset, isolation=READ_COMMITTED, size_max=size_max)
                client.sendall(encode_request(request, FETCH_VERSION, 1, "x"))
                frame = read_frame(client)
                assert frame is not None
                (data,) = response_to(request, FETCH_VERSION, frame).responses[0].partitions
                assert data.error_code == 0
                found.append(
                    Fetched(
                        offset,
                        size_max,
                        len(data.records or b""),
                        [(one.producer_id, one.first_offset) for one in data.aborted_transactions],
                        data.last_stable_offset,
                    )
                )
    return found


def load(directory: Path, *, was_clean: bool) -> Log:
    """Load a partition's directory, after a clean stop or the loss of all checkpoints."""
    return load_log(
        FS,
        directory,
        LogIdentity("t", 0, bytes(16)),
        TopicConfig(internal_segment_bytes=SEGMENT_BYTES),
        Checkpointed(0, 0, was_clean),
        now_ms=0,
        random_source=random.Random(1),
    )


def files(directory: Path, *kinds: str) -> dict[str, bytes]:
    """Return what files hold; of snapshots what Kafka writes: each producer's last entry."""
    found = {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix in kinds
    }
    for name in (name for name in found if name.endswith(SNAPSHOT)):
        found[name] = last_entries(found[name])
    return found


def last_entries(snapshot: bytes) -> bytes:
    """Return the entries of a snapshot that count for Kafka: of a producer the last one."""
    head, size = 10, 46
    found = {
        snapshot[at : at + 8]: snapshot[at : at + size] for at in range(head, len(snapshot), size)
    }
    return b"".join(found.values())


@pytest.fixture(params=list(TOPICS))
def kafkas(request: pytest.FixtureRequest, written: dict[str, Written]) -> Written:
    return written[request.param]


@pytest.fixture
def copied(kafkas: Written, tmp_path: Path) -> Path:
    """A copy of Kafka's directory as it is."""
    return shutil.copytree(kafkas.directory, tmp_path / "copied-0")


@pytest.fixture
def rebuilt(copied: Path) -> Log:
    """The copy, loaded when all is lost but the batches."""
    for path in copied.iterdir():
        if path.suffix in (SNAPSHOT, TXN_INDEX):
            path.unlink()
    return load(copied, was_clean=False)


def test_the_history_has_what_it_takes(kafkas: Written) -> None:
    names = list(files(kafkas.directory, ".log"))
    assert len(names) > 3
    assert len(files(kafkas.directory, TXN_INDEX)) > 1
    assert kafkas.last_stable_offset < kafkas.log_end_offset - 4
    assert 50 < len(kafkas.committed) < kafkas.last_stable_offset - 20


def test_indexes_and_snapshots_are_rebuilt_to_the_byte(kafkas: Written, rebuilt: Log) -> None:
    rebuilt.close()
    kinds = SNAPSHOT, TXN_INDEX
    assert files(rebuilt.directory, *kinds) == files(kafkas.directory, *kinds)


def test_kafkas_own_files_say_what_the_log_says(copied: Path, kafkas: Written) -> None:
    before = files(copied, ".log", SNAPSHOT, TXN_INDEX)
    own = load(copied, was_clean=True)
    assert files(copied, ".log", SNAPSHOT, TXN_INDEX) == before
    for path in copied.iterdir():
        if path.suffix == SNAPSHOT:
            path.unlink()
    replayed = load(copied, was_clean=False)

    def facts(state: ProducerState) -> list[int]:
        return [
            state.producer_id,
            state.epoch,
            state.coordinator_epoch,
            state.last_timestamp,
            state.transaction_first_offset,
            state.last_sequence,
            state.last_data_offset,
        ]

    found = sorted(facts(one) for one in own.producers)
    assert found == sorted(facts(one) for one in replayed.producers)
    assert len(found) == 5
    assert own.last_stable_offset == replayed.last_stable_offset == kafkas.last_stable_offset


def test_a_fetch_brings_what_kafkas_does(copied: Path, kafkas: Written) -> None:
    """But for aborted transactions past its end, of which Kafka at times names some more: its
    search in an index passes over a first entry that is the very one."""
    log = load(copied, was_clean=True)
    named_more = 0
    for fetched in kafkas.fetched:
        assert log.last_stable_offset == fetched.last_stable_offset
        offset, size_max = fetched.offset, fetched.size_max
        found = log.read(offset, size_max, at_least_one=True, is_committed=True)
        if found is None:
            assert (fetched.size, fetched.aborted) == (0, [])
            continue
        assert found.size == fetched.size
        within = aborted_within(log.segments, offset, found, log.log_end_offset)
        ours = [(one.producer_id, one.first_offset) for one in within]
        whole = [h for at, h in iterate_batches(found.read()) if at + h.size_bytes <= found.size]
        end = max([offset, *(header.last_offset for header in whole)])
        assert [one for one in fetched.aborted if one in ours] == ours
        assert all(first > end for _, first in set(fetched.aborted) - set(ours)), fetched
        named_more += fetched.aborted != ours
    assert sum(bool(one.aborted) for one in kafkas.fetched) > 50
    assert named_more < len(kafkas.fetched) // 20


@pytest.mark.parametrize("size_max", [1, 3_000, 150_000, 1 << 24])
def test_committed_records_are_those_that_kafkas_consumer_saw(
    kafkas: Written, rebuilt: Log, size_max: int
) -> None:
    assert rebuilt.last_stable_offset == kafkas.last_stable_offset
    assert rebuilt.log_end_offset == kafkas.log_end_offset
    assert list(committed_offsets(rebuilt, size_max)) == kafkas.committed


def test_a_damaged_index_is_rebuilt_at_a_clean_start(copied: Path, kafkas: Written) -> None:
    whole = files(copied, SNAPSHOT, TXN_INDEX)
    for path in copied.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-7])
    load(copied, was_clean=True).close()
    assert files(copied, SNAPSHOT, TXN_INDEX) == whole


def test_our_markers_are_kafkas(rebuilt: Log) -> None:
    """Written again from what they say, as the topic's settings want it, they are the same."""
    markers = [
        (header, data)
        for segment in rebuilt.segments
        for _, header, data in segment.batches()
        if header.is_control
    ]
    assert len(markers) > 20
    for header, data in markers:
        marker = read_marker(header, data)
        assert marker is not None
        is_stamped = header.is_log_append_time
        checked = check_batch(
            replace(marker, timestamp=header.base_timestamp).encode(),
            STAMPED if is_stamped else TopicConfig(),
            header.max_timestamp,
            "t-0",
            from_client=False,
        )
        patch_base_offset_and_epoch(checked.data, 0, header.base_offset, header.leader_epoch)
        assert checked.data == data


def test_every_aborted_transaction_is_found_between_any_two_offsets(rebuilt: Log) -> None:
    every = aborted_between(rebuilt.segments, 0, rebuilt.log_end_offset)
    assert len(every) > 5
    offsets = range(0, rebuilt.log_end_offset, 7)
    for start, end in itertools.combinations(offsets, 2):
        found = aborted_between(rebuilt.segments, start, end)
        assert found == [t for t in every if t.last_offset >= start and t.first_offset < end]
