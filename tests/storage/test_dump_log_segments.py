"""Kafka's own DumpLogSegments finds nothing wrong in what we wrote."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.config.topic import TopicConfig
from odradek.protocol.compression import Codec
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from tests.cleaner.once import clean_once
from tests.storage.dump import check_data, dump, segment_files
from tests.storage.partition import COMPACT, TOPIC, Partition, clean
from tests.storage.transactional import end, indexed, write

pytestmark = pytest.mark.kafka

Damage = Callable[[Path], None]
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


def cleaned_for_real(path: Path) -> Partition:
    """By the cleaner, twice, with tombstones that go; then killed."""
    partition = appended(path)
    for at in range(2):
        partition.log.roll(partition.clock.advance(200_000_000))
        result = clean_once(
            partition.log, partition.directory, partition.clock.now_ms(), fs=partition.fs
        )
        assert result is not None
        fill(partition, 60, seed=3 + at)
    return partition.next_life()


STATES = [
    appended,
    stopped,
    cleaned,
    cleaned_for_real,
    trimmed,
    recovered,
    one_record_a_segment,
    stamped_by_the_log,
    without_timestamps,
    with_transactions,
]
# Where a cleaning has left gaps between offsets.
GAPPED = {"cleaned", "cleaned_for_real"}


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Partition]:
    """One log in each state."""
    return {state.__name__: state(tmp_path_factory.mktemp(state.__name__)) for state in STATES}


@pytest.mark.parametrize("gapped", [False, True])
def test_nothing_is_wrong(partitions: dict[str, Partition], gapped: bool) -> None:
    chosen = [one for name, one in partitions.items() if (name in GAPPED) == gapped]
    found = check_data(*(one.path for one in chosen), with_gaps=[TOPIC] if gapped else ())
    batches = [batch for one in chosen for batch in one.batches()]
    assert found.batch_count >= len(batches) > 0
    assert found.record_count >= sum(len(batch.records) for batch in batches)


def test_an_index_of_several_entries_is_among_them(partitions: dict[str, Partition]) -> None:
    index = partitions["appended"].log.segments[0].offset_index
    assert len(index.entries.load()[0]) > 3


def test_snapshots_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["stopped"]
    found = dump(segment_files([partition.path], SNAPSHOT))
    assert not found.wrong
    for state in partition.log.producers:
        last = state.batches[-1]
        assert (
            f"producerId: {state.producer_id} producerEpoch: 3 coordinatorEpoch: -1 "
            f"currentTxnFirstOffset: OptionalLong.empty lastTimestamp: {last.timestamp} "
            f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
            f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
            f"timestamp: {last.timestamp}" in found.text
        )


def test_transaction_indexes_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["with_transactions"]
    shown = dump(segment_files([partition.path], TXN_INDEX))
    assert not shown.wrong
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    found = re.findall(" ".join(rf"{name}: (\d+)" for name in names), shown.text)
    assert [tuple(map(int, numbers)) for numbers in found] == [
        (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in indexed(partition.log)
    ]
    assert len(found) > 5


def test_markers_and_open_transactions_are_decoded(partitions: dict[str, Partition]) -> None:
    partition = partitions["with_transactions"]
    text = dump(segment_files([partition.path], LOG), "--deep-iteration").text
    markers = [batch for batch in partition.batches() if len(batch.data) == 78]
    assert len(markers) == text.count("endTxnMarker: ") > 10
    shown = dump(segment_files([partition.path], SNAPSHOT)[-1:])
    assert not shown.wrong
    begun = [state.transaction_first_offset for state in partition.log.producers]
    begun = [offset for offset in begun if offset >= 0]
    found = re.findall(r"currentTxnFirstOffset: OptionalLong\[(\d+)\]", shown.text)
    assert sorted(map(int, found)) == sorted(begun) != []


# --- that the checks can fail -----------------------------------------------------------------


def _overwrite(path: Path, position: int, octets: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position, 0 if position >= 0 else 2)
        file.write(octets)


def _wrong_offset_entry(directory: Path) -> None:
    index = directory / "00000000000000000000.index"
    position = int.from_bytes(index.read_bytes()[4:8], "big")
    _overwrite(index, 4, (position + 1).to_bytes(4, "big"))


def _wrong_time_entry(directory: Path) -> None:
    index = directory / "00000000000000000000.timeindex"
    timestamp = int.from_bytes(index.read_bytes()[:8], "big")
    _overwrite(index, 0, (timestamp - 1).to_bytes(8, "big"))


def _index_of_no_whole_entries(directory: Path) -> None:
    _overwrite(directory / "00000000000000000000.index", -1, b"\1\1\1")


def _flipped_record(directory: Path) -> None:
    _overwrite(directory / "00000000000000000000.log", 75, b"\xff")


def _torn_tail(directory: Path) -> None:
    log = max(directory.glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 3)


def _missing_batch(directory: Path) -> None:
    log = directory / "00000000000000000000.log"
    octets = log.read_bytes()
    log.write_bytes(octets[12 + int.from_bytes(octets[8:12], "big") :])


@pytest.mark.parametrize(
    ("damage", "sign"),
    [
        (_wrong_offset_entry, "Mismatches in :|Index offset: |ended with 1"),
        (_wrong_time_entry, "Found timestamp mismatch in :|Index timestamp: "),
        (_index_of_no_whole_entries, "CorruptIndexException"),
        (_flipped_record, "isvalid: false"),
        (_torn_tail, "invalid bytes"),
        (_missing_batch, "CorruptRecordException"),
    ],
)
def test_damage_is_reported(tmp_path: Path, damage: Damage, sign: str) -> None:
    partition = stopped(tmp_path)
    damage(partition.log.directory)
    with pytest.raises(AssertionError, match=sign):
        check_data(partition.path)
