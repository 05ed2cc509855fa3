"""Transactions in a log: who may write, what is stable, what the index says of the aborted."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import Record, encode_batch
from odradek.storage.errors import (
    CorruptFile,
    DiskFailure,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from odradek.storage.log import Log
from odradek.storage.reading import aborted_between
from odradek.storage.segment import INDEX, LOG, TXN_INDEX
from odradek.storage.transactions import (
    AbortedTransaction,
    TransactionIndex,
    pack_aborted,
    parse_aborted,
)
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition
from tests.storage.transactional import committed_offsets, end, indexed, marker, write

DATA = Path("/data")
FILES = DATA / "orders-0"
ABORTED = AbortedTransaction(first_offset=10, last_offset=20, producer_id=7, last_stable_offset=21)


def new_partition() -> Partition:
    return Partition(CrashFileSystem())


# --- the index ------------------------------------------------------------------------------


def test_an_index_is_kafkas_bytes() -> None:
    data = pack_aborted([ABORTED])
    assert data.hex() == (
        "0000" "0000000000000007" "000000000000000a" "0000000000000014" "0000000000000015"
    )  # fmt: skip
    later = replace(ABORTED, first_offset=12, last_offset=30)
    assert parse_aborted(pack_aborted([ABORTED, later]), Path("x")) == [ABORTED, later]


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (pack_aborted([ABORTED]) + b"\0\1" + bytes(32), 34),
        (pack_aborted([ABORTED]) + bytes(33), 34),
        (pack_aborted([ABORTED, ABORTED]), 34),
        (pack_aborted([replace(ABORTED, first_offset=21)]), 0),
    ],
    ids=["another version", "part of an entry", "not growing", "ends before it begins"],
)
def test_data_that_is_no_index_is_damage(data: bytes, position: int) -> None:
    with pytest.raises(CorruptFile) as caught:
        parse_aborted(data, Path("x"))
    assert (caught.value.path, caught.value.position) == (Path("x"), position)


ENTRIES = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(0, 30)), max_size=12
)


@given(ENTRIES, st.integers(0, 120), st.integers(0, 120))
def test_overlapping_transactions_are_found(
    shapes: list[tuple[int, int, int]], start: int, length: int
) -> None:
    entries: list[AbortedTransaction] = []
    last = stable = 0
    for producer_id, (step, size, lag) in enumerate(shapes):
        last += step
        first = max(last - size, 0)
        stable = max(stable, min(last + 1 - lag, last + 1))  # it only grows
        entries.append(AbortedTransaction(first, last, producer_id, stable))
    index = TransactionIndex(CrashFileSystem(), Path("/x"))
    for entry in entries:
        index.append(entry)
    end_offset = start + length
    found, is_complete = index.between(start, end_offset)
    stop = next((at for at, e in enumerate(entries) if e.last_offset >= start
                 and e.last_stable_offset >= end_offset), None)  # fmt: skip
    assert is_complete == (stop is not None)
    looked_at = entries if stop is None else entries[: stop + 1]
    assert found == [
        e for e in looked_at if e.last_offset >= start and e.first_offset < end_offset
    ]


def test_there_is_no_index_before_a_transaction_is_aborted() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a")
    end(partition, 3, 0, commit=True)
    end(partition, 4, 0, commit=False)  # nothing was written in it
    path = partition.log.active.path(TXN_INDEX)
    assert not partition.fs.exists(path)
    write(partition, 3, 0, 1, b"b")
    end(partition, 3, 0, commit=False)
    assert parse_aborted(partition.fs.read_bytes(path), path) == [AbortedTransaction(3, 4, 3, 5)]


def test_an_entry_lies_in_the_segment_of_its_marker() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a")
    partition.log.roll(0)
    write(partition, 4, 0, 0, b"b")
    end(partition, 4, 0, commit=False)
    partition.log.roll(0)
    end(partition, 3, 0, commit=False)
    first, second, third = partition.log.segments
    assert not partition.fs.exists(first.path(TXN_INDEX))
    assert second.transactions.between(0, 9)[0] == [AbortedTransaction(1, 2, 4, 0)]
    assert third.transactions.between(0, 9)[0] == [AbortedTransaction(0, 3, 3, 4)]
    assert aborted_between(partition.log.segments, 0, 1) == [AbortedTransaction(0, 3, 3, 4)]


# --- who may write --------------------------------------------------------------------------


def test_a_producer_writes_within_its_transaction_or_outside_of_any() -> None:
    partition = new_partition()
    partition.append([(b"k", b"v")], producer=(3, 0, 0))
    write(partition, 3, 0, 1, b"a")
    with pytest.raises(InvalidTransactionState):
        partition.append([(b"k", b"v")], producer=(3, 0, 2))
    end(partition, 3, 0, commit=True)
    partition.append([(b"k", b"v")], producer=(3, 0, 2))


def test_a_repeated_batch_of_a_transaction_is_known_again() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a", b"b")
    entry = write(partition, 3, 0, 2, b"c")
    assert write(partition, 3, 0, 2, b"c") == entry
    assert partition.log.log_end_offset == 3


def test_the_markers_of_fenced_coordinators_and_producers_are_refused() -> None:
    partition = new_partition()
    log = partition.log
    write(partition, 3, 5, 0, b"a")
    log.append_marker(marker(partition, 3, 5, commit=True, coordinator_epoch=2))
    write(partition, 3, 5, 1, b"b")
    before = partition.batches(), log.last_stable_offset
    with pytest.raises(TransactionCoordinatorFenced):
        log.append_marker(marker(partition, 3, 5, commit=True, coordinator_epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(marker(partition, 3, 4, commit=True, coordinator_epoch=2))
    assert (partition.batches(), log.last_stable_offset) == before
    log.append_marker(marker(partition, 3, 5, commit=False, coordinator_epoch=3))
    assert indexed(log) == [AbortedTransaction(2, 3, 3, 4)]


def test_a_marker_of_a_raised_epoch_fences_and_restarts_the_sequences() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a", b"b")
    end(partition, 3, 1, commit=True)
    with pytest.raises(InvalidProducerEpoch):
        write(partition, 3, 0, 2, b"c")
    with pytest.raises(OutOfOrderSequence):
        write(partition, 3, 1, 2, b"c")
    write(partition, 3, 1, 0, b"c")


def test_the_second_transaction_version_asks_for_a_raised_epoch() -> None:
    partition = new_partition()
    log = partition.log
    write(partition, 3, 0, 0, b"a")
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(marker(partition, 3, 0, commit=True, version=2))
    log.append_marker(marker(partition, 3, 1, commit=True, version=2))
    # Sent again, as by a coordinator that heard no answer; an old one is late.
    log.append_marker(marker(partition, 3, 1, commit=True, version=2))
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(marker(partition, 3, 0, commit=True, version=2))
    assert log.last_stable_offset == log.log_end_offset == 3


def test_the_highest_epoch_can_be_ended() -> None:
    partition = new_partition()
    write(partition, 3, 2**15 - 1, 0, b"a")
    partition.log.append_marker(marker(partition, 3, 2**15 - 1, commit=True, version=2))
    assert partition.log.last_stable_offset == 2


def coordinators_batch(epoch: int, *, transactional: bool = True) -> bytes:
    """As the group coordinator writes offsets that a producer commits in a transaction."""
    record = Record(0, 1, b"k", b"v")
    return encode_batch([record], producer_id=3, producer_epoch=epoch, transactional=transactional)


def test_the_brokers_own_batches_have_no_sequence_but_an_epoch() -> None:
    partition = new_partition()
    log = partition.log
    with pytest.raises(InvalidRecord):
        log.append(coordinators_batch(1), now_ms=1)
    for _ in range(2):  # alike, and yet no repetition
        log.append(coordinators_batch(1), now_ms=1, from_client=False)
    with pytest.raises(InvalidProducerEpoch):
        log.append(coordinators_batch(0), now_ms=1, from_client=False)
    with pytest.raises(InvalidTransactionState):
        log.append(coordinators_batch(1, transactional=False), now_ms=1, from_client=False)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)


def test_a_control_batch_that_ends_nothing_is_refused() -> None:
    partition = new_partition()
    leader_change = Record(0, 1, b"\0\0\0\2", b"\0\0")
    batch = encode_batch([leader_change], producer_id=3, producer_epoch=0, control=True)
    with pytest.raises(InvalidRecord):
        partition.log.append(batch, now_ms=1, from_client=False)
    assert partition.log.log_end_offset == 0


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a")
    producers = partition.log.producers
    assert producers.expire(1 << 60, 1) == 0
    end(partition, 3, 0, commit=True)
    assert producers.expire(1 << 60, 1) == 1


# --- what is stable -------------------------------------------------------------------------


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins() -> None:
    partition = new_partition()
    log = partition.log
    partition.append([(b"k", b"v")])
    for producer_id in (5, 3, 4):
        write(partition, producer_id, 0, 0, b"a", b"b")
    found = [log.last_stable_offset]
    for producer_id in (3, 5, 4):
        end(partition, producer_id, 0, commit=producer_id != 3)
        found.append(log.last_stable_offset)
    assert found == [1, 1, 5, 10]
    assert list(committed_offsets(log)) == [0, 1, 2, 5, 6]


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_an_open_transaction_outlives_a_stop(how: str) -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a")
    partition.log.roll(0)
    write(partition, 4, 0, 0, b"b")
    if how == "clean":
        partition = partition.reopen()
    else:
        assert isinstance(partition.fs, CrashFileSystem)
        partition = partition.next_life(partition.fs.clone_after_kill())
    assert partition.log.last_stable_offset == 0
    end(partition, 3, 0, commit=False)
    assert partition.log.last_stable_offset == 1
    end(partition, 4, 0, commit=True)
    assert indexed(partition.log) == [AbortedTransaction(0, 2, 3, 1)]


def test_deleted_records_are_not_unstable() -> None:
    """DeleteRecords reaches up to the high watermark, open transactions or not."""
    partition = new_partition()
    log = partition.log
    write(partition, 3, 0, 0, b"a", b"b", b"c")
    partition.append([(b"k", b"v")])
    log.advance_start_offset(1)  # within the batch
    assert log.last_stable_offset == 1
    assert log.read(1, 1 << 20, at_least_one=True, is_committed=True) is None
    log.advance_start_offset(4)
    assert log.last_stable_offset == 4
    with pytest.raises(OffsetOutOfRange):
        log.advance_start_offset(5)
    log.delete_segments(len(log.segments), 0)
    partition.append([(b"k", b"v")])
    assert log.last_stable_offset == 4
    end(partition, 3, 0, commit=True)
    assert log.last_stable_offset == log.log_end_offset == 6


def read_size(log: Log, offset: int, size_max: int = 1 << 20) -> int | None:
    found = log.read(offset, size_max, at_least_one=True, is_committed=True)
    return found.size if found is not None else None


def test_a_read_ends_where_an_open_transaction_begins() -> None:
    partition = Partition(CrashFileSystem(), config=replace(SMALL, internal_segment_bytes=1 << 20))
    log = partition.log
    for at in range(40):  # enough for index entries before and after
        partition.append([(b"k", bytes(at))])
    stable_bytes = log.size_bytes
    write(partition, 3, 0, 0, b"a")
    for at in range(40):
        partition.append([(b"k", bytes(at))])
    assert read_size(log, 0) == stable_bytes
    assert read_size(log, 0, 500) == 500
    assert read_size(log, 40) is read_size(log, 60) is read_size(log, 81) is None
    log.roll(0)
    partition.append([(b"k", b"v")])
    assert read_size(log, 0) == stable_bytes
    assert read_size(log, 81) is None
    with pytest.raises(OffsetOutOfRange):
        read_size(log, 83)
    end(partition, 3, 0, commit=True)
    assert read_size(log, 0) == log.segments[0].size_bytes


def test_those_who_wait_hear_when_more_is_stable() -> None:
    partition = new_partition()
    heard: list[int] = []
    partition.log.on_stable = lambda log: heard.append(log.last_stable_offset)
    write(partition, 3, 0, 0, b"a")
    write(partition, 4, 0, 0, b"b")
    end(partition, 4, 0, commit=True)  # the older one is still open
    assert heard == []
    end(partition, 3, 0, commit=False)
    assert heard == [4]
    end(partition, 3, 0, commit=False)
    assert heard == [4]


# --- disks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_index", [False, True])
def test_a_marker_whose_entry_cannot_be_written_is_not_in_the_log(has_index: bool) -> None:
    partition = new_partition()
    fs, log = partition.fs, partition.log
    assert isinstance(fs, CrashFileSystem)
    if has_index:
        write(partition, 4, 0, 0, b"a")
        end(partition, 4, 0, commit=False)
    write(partition, 3, 0, 0, b"a")
    before = partition.batches(), log.last_stable_offset, log.log_end_offset, indexed(log)
    full = OSError(errno.ENOSPC, "No space left on device")
    fs.refuse = lambda kind, path: (
        full if path.suffix == TXN_INDEX and kind in ("create", "write") else None
    )
    with pytest.raises(DiskFailure):
        end(partition, 3, 0, commit=False)
    fs.refuse = None
    assert before == (
        partition.batches(), log.last_stable_offset, log.log_end_offset, indexed(log),
    )  # fmt: skip
    entry = end(partition, 3, 0, commit=False)
    assert entry.base_offset == before[2]
    again = partition.reopen().log
    assert again.last_stable_offset == again.log_end_offset
    assert len(indexed(again)) == 1 + has_index


def stopped_with_aborts() -> tuple[Partition, list[AbortedTransaction]]:
    """A clean stop after some aborted transactions in some segments."""
    partition = new_partition()
    for at in range(6):
        write(partition, 3, 0, at, bytes(300))
        end(partition, 3, 0, commit=at % 2 == 0)
        partition.append([(b"k", bytes(600))])
    aborted = indexed(partition.log)
    assert len(aborted) == 3
    assert len(partition.log.segments) > 3
    partition.directory.close()
    return partition, aborted


@pytest.mark.parametrize(
    "damage", [b"", b"\0", b"\0\1" + bytes(32), pack_aborted([replace(ABORTED, last_offset=999)])]
)
def test_a_damaged_index_is_rebuilt_from_the_log(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stopped, aborted = stopped_with_aborts()
    fs = stopped.fs
    name = next(n for n in fs.list(FILES) if n.endswith(TXN_INDEX))
    fs.write_bytes(FILES / name, damage)
    with caplog.at_level(logging.WARNING):
        log = stopped.next_life().log
    assert indexed(log) == aborted
    assert f"{name} is damaged at position" in caplog.text


def test_an_index_goes_missing_with_the_others(caplog: pytest.LogCaptureFixture) -> None:
    stopped, aborted = stopped_with_aborts()
    fs = stopped.fs
    names = [n for n in fs.list(FILES) if n.endswith(TXN_INDEX)]
    fs.remove(FILES / names[0])
    fs.remove(FILES / names[0].replace(TXN_INDEX, INDEX))
    assert indexed(stopped.next_life().log) == aborted


def test_a_clean_start_leaves_sound_indexes_alone() -> None:
    stopped, aborted = stopped_with_aborts()
    fs = stopped.fs
    assert isinstance(fs, CrashFileSystem)
    touched: list[Path] = []
    fs.before = lambda kind, path: touched.append(path)
    log = stopped.next_life().log
    fs.before = None
    assert not [path for path in touched if TXN_INDEX in path.name]
    assert indexed(log) == aborted


@pytest.mark.parametrize("left", [b"", b"\0", None], ids=["nothing", "a part", "all"])
def test_the_entry_of_a_marker_that_a_crash_took_goes(left: bytes | None) -> None:
    partition = new_partition()
    assert isinstance(partition.fs, CrashFileSystem)
    write(partition, 3, 0, 0, b"a")
    partition.log.roll(0)
    partition.flush()
    partition.directory.write_checkpoints()
    end(partition, 3, 0, commit=False)
    fs = partition.fs.clone_after_kill()
    active = partition.log.active
    fs.open(active.path(LOG), write=True).truncate(0)
    if left is not None:
        fs.write_bytes(active.path(TXN_INDEX), left)
    survived = partition.next_life(fs)
    assert (survived.log.last_stable_offset, survived.log.log_end_offset) == (0, 1)
    assert not fs.exists(active.path(TXN_INDEX))
    end(survived, 3, 0, commit=False)
    assert indexed(survived.reopen().log) == [AbortedTransaction(0, 1, 3, 2)]


def test_an_entry_that_a_crash_has_torn_to_zeros_is_not_kept() -> None:
    partition = new_partition()
    write(partition, 3, 0, 0, b"a")
    partition.flush()
    partition.directory.write_checkpoints()
    partition.log.roll(partition.clock.now_ms())
    fs, path = partition.fs, partition.log.active.path(TXN_INDEX)
    fs.write_bytes(path, bytes(34))
    with pytest.raises(CorruptFile, match="no transaction ends at offset 0"):
        parse_aborted(bytes(34), path)
    assert isinstance(fs, CrashFileSystem)
    survived = partition.next_life(fs.clone_after_kill())
    assert indexed(survived.log) == []
