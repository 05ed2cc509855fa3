"""Kafka's own DumpLogSegments finds nothing wrong in what we wrote."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.processes import kafka_tool
from config.topic import TopicConfig
from protocol.compression import Codec
from storage.files import RealFileSystem
from storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from tests.storage.partition import COMPACT, TOPIC, Partition, clean
from tests.storage.transactional import end, indexed, write

pytestmark = pytest.mark.kafka

TOOL = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = replace(TopicConfig(), internal_segment_bytes=60_000, cleanup_policy=COMPACT)


def fill(partition: Partition, batches: int, seed: int = 1) -> None:
    """Append batches of many shapes, their timestamps out of order, some by producers."""
    source = random.Random(seed)
    sequences = {s.producer_id: s.last_sequence + 1 for s in partition.log.producers}
    for _ in range(batches):
        count = source.choice([1, 1, 2, 7, 40])
        records = [
            (b"key%d" % source.randrange(30), source.choice([None, b"", source.randbytes(200)]))
            for _ in range(count)
        ]
        now_ms = partition.clock.advance(source.choice([0, 1, 50, 2_000]))
        producer = source.choice([None, 1, 2])
        partition.append(
            records,
            [now_ms - source.randrange(3_000) for _ in range(count)],
            codec=source.choice(list(Codec)),
            producer=None if producer is None else (producer, 3, sequences.get(producer, 0)),
        )
        if producer is not None:
            sequences[producer] = sequences.get(producer, 0) + count


def appended(path: Path) -> Partition:
    partition = Partition(RealFileSystem(), path, CONFIG)
    fill(partition, 250)
    return partition


def stopped(path: Path) -> Partition:
    partition = appended(path)
    partition.directory.close()
    return partition


def cleaned(path: Path) -> Partition:
    partition = appended(path)
    dropped = {batch.base_offset for batch in partition.batches()[::3]}
    clean(partition, 0, 2, dropped)
    return partition


def trimmed(path: Path) -> Partition:
    partition = appended(path)
    log = partition.log
    log.advance_start_offset(log.segments[1].base_offset + 5)
    log.delete_segments(1, partition.clock.now_ms())
    return partition


def recovered(path: Path) -> Partition:
    """A torn tail and rubbish where the indexes were, after a kill."""
    partition = appended(path)
    active = partition.log.active
    with active.path(LOG).open("r+b") as file:
        file.truncate(active.size_bytes - 20)
    for segment in partition.log.segments:
        segment.path(INDEX).write_bytes(b"rubbish" * 9)
        segment.path(TIME_INDEX).unlink()
    survived = partition.next_life()
    fill(survived, 50, seed=2)
    return survived


def one_record_a_segment(path: Path) -> Partition:
    """As topics with a very small segment.ms have them."""
    partition = Partition(RealFileSystem(), path, replace(CONFIG, segment_ms=100))
    for at in range(12):
        partition.append([(b"k%d" % at, b"v")])
        partition.clock.advance(101)
    return partition


def with_transactions(path: Path) -> Partition:
    partition = Partition(RealFileSystem(), path, CONFIG)
    source = random.Random(3)
    sequences = dict.fromkeys((3, 4, 5), 0)
    for _ in range(120):
        producer = source.choice(list(sequences))
        if source.random() < 0.7:
            write(partition, producer, 0, sequences[producer], source.randbytes(2_000))
            sequences[producer] += 1
        else:
            end(partition, producer, 0, commit=source.random() < 0.5)
    partition.directory.close()
    return partition


def stamped_by_the_log(path: Path) -> Partition:
    config = replace(CONFIG, message_timestamp_type="LogAppendTime", compression_type="zstd")
    partition = Partition(RealFileSystem(), path, config)
    fill(partition, 200)
    return partition


def without_timestamps(path: Path) -> Partition:
    partition = Partition(RealFileSystem(), path, CONFIG)
    for _ in range(200):
        partition.append([(b"k", bytes(500))], -1)
    return partition


STATES = [
    appended,
    stopped,
    cleaned,
    trimmed,
    recovered,
    one_record_a_segment,
    stamped_by_the_log,
    without_timestamps,
    with_transactions,
]


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Partition]:
    """One log in each state."""
    return {state.__name__: state(tmp_path_factory.mktemp(state.__name__)) for state in STATES}


def files(partitions: dict[str, Partition], *kinds: str) -> list[Path]:
    """All files of some kinds, of all logs."""
    found = [
        path
        for partition in partitions.values()
        for path in sorted((partition.path / f"{TOPIC}-0").iterdir())
        if path.suffix in kinds
    ]
    assert len(found) > len(partitions)
    return found


def dump(paths: list[Path], *flags: str) -> tuple[str, list[str]]:
    """Run the tool; return what it printed, and what it found wrong."""
    done = kafka_tool([TOOL, *flags, "--files", ",".join(map(str, paths))], check=False)
    assert done.returncode == 0, done.stderr
    # It takes the first offset of any segment but the first for a gap after -1.
    wrong = [line for line in done.stderr.splitlines() if "  -1 is followed by" not in line]
    return done.stdout, [line for line in wrong if not line.startswith("Non-consecutive offsets")]


def test_batches_and_records(partitions: dict[str, Partition]) -> None:
    consecutive = {name: one for name, one in partitions.items() if name != "cleaned"}
    text, wrong = dump(files(consecutive, LOG), "--deep-iteration")
    assert wrong == []
    assert "invalid bytes" not in text
    assert "isvalid: false" not in text
    batches = [batch for one in consecutive.values() for batch in one.batches()]
    assert text.count("isvalid: true") >= len(batches)
    assert len(re.findall(r"^\| offset: ", text, re.M)) >= sum(len(b.records) for b in batches)


def test_batches_that_a_cleaning_left(partitions: dict[str, Partition]) -> None:
    cleaned = partitions["cleaned"]
    text, wrong = dump(files({"": cleaned}, LOG), "--deep-iteration")
    assert "isvalid: false" not in text
    assert "invalid bytes" not in text
    # The gaps between records that a cleaning leaves are all that it points out.
    assert all(re.fullmatch(r"  \d+ is followed by \d+", line) for line in wrong)
    assert text.count("isvalid: true") == len(cleaned.batches())


def test_indexes_pass_the_sanity_check(partitions: dict[str, Partition]) -> None:
    paths = files(partitions, INDEX, TIME_INDEX)
    text, wrong = dump(paths, "--index-sanity-check")
    assert wrong == []
    for path in paths:
        assert f"{path} passed sanity check." in text or f"{path} is empty." in text


def test_indexes_say_what_the_logs_say(partitions: dict[str, Partition]) -> None:
    assert dump(files(partitions, INDEX, TIME_INDEX), "--verify-index-only")[1] == []


def test_snapshots_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["stopped"]
    text, wrong = dump(files({"": partition}, SNAPSHOT))
    assert wrong == []
    for state in partition.log.producers:
        last = state.batches[-1]
        assert (
            f"producerId: {state.producer_id} producerEpoch: 3 coordinatorEpoch: -1 "
            f"currentTxnFirstOffset: OptionalLong.empty lastTimestamp: {last.timestamp} "
            f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
            f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
            f"timestamp: {last.timestamp}" in text
        )


def test_transaction_indexes_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["with_transactions"]
    text, wrong = dump(files({"": partition}, TXN_INDEX))
    assert wrong == []
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    found = re.findall(" ".join(rf"{name}: (\d+)" for name in names), text)
    assert [tuple(map(int, numbers)) for numbers in found] == [
        (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in indexed(partition.log)
    ]
    assert len(found) > 5


def test_markers_and_open_transactions_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["with_transactions"]
    text, _ = dump(files({"": partition}, LOG), "--deep-iteration")
    markers = [batch for batch in partition.batches() if len(batch.data) == 78]
    assert len(markers) == text.count("endTxnMarker: ") > 10
    text, wrong = dump(files({"": partition}, SNAPSHOT)[-1:])
    assert wrong == []
    begun = [state.transaction_first_offset for state in partition.log.producers]
    begun = [offset for offset in begun if offset >= 0]
    found = re.findall(r"currentTxnFirstOffset: OptionalLong\[(\d+)\]", text)
    assert sorted(map(int, found)) == sorted(begun) != []
