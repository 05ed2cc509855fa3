"""Producers with transactions on a Partition, and what a reader of the log must see of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.storage.appended import Appended
from odradek.storage.log import Log
from odradek.storage.reading import aborted_within
from odradek.storage.segment import TXN_INDEX
from odradek.storage.transactions import AbortedTransaction, Marker, parse_aborted
from tests.storage.partition import Partition


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch or a marker of a log, as the model of transactions keeps it."""

    base_offset: int
    last_offset: int
    producer_id: int  # -1: none
    is_commit: bool | None = None  # of a marker
    is_transactional: bool = True


def write(
    partition: Partition, producer_id: int, epoch: int, sequence: int, *values: bytes
) -> Entry:
    """Append a batch of a transaction."""
    now_ms = partition.clock.now_ms()
    batch = encode_batch(
        [Record(at, now_ms, b"k%d" % at, value) for at, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    done = partition.log.append(batch, now_ms=now_ms)
    return Entry(done.base_offset, done.last_offset, producer_id)


def marker(
    partition: Partition,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> Marker:
    """A marker of now."""
    now_ms = partition.clock.now_ms()
    return Marker(producer_id, epoch, coordinator_epoch, commit, now_ms, version)


def end(partition: Partition, producer_id: int, epoch: int, *, commit: bool) -> Entry:
    """Append the marker that ends a producer's transaction."""
    ending = marker(partition, producer_id, epoch, commit=commit)
    done: Appended = partition.log.append_marker(ending)
    return Entry(done.base_offset, done.last_offset, producer_id, commit)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a history of entries means, found by going through all of it."""

    last_stable_offset: int
    committed: list[int]
    aborted: list[AbortedTransaction]


def expect(entries: list[Entry], end_offset: int) -> Expected:
    """Tell what is stable, committed and aborted, in the plainest way."""
    aborted = []
    fates: dict[int, bool] = {}  # by base offset
    open_batches: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.is_commit is not None:
            ended = open_batches.pop(entry.producer_id, [])
            fates.update((one.base_offset, entry.is_commit) for one in ended)
            if ended and not entry.is_commit:
                firsts = [batches[0].base_offset for batches in open_batches.values()]
                stable = min([*firsts, entry.last_offset + 1])
                first = ended[0].base_offset
                aborted.append(
                    AbortedTransaction(first, entry.last_offset, entry.producer_id, stable)
                )
        elif entry.producer_id >= 0 and entry.is_transactional:
            open_batches.setdefault(entry.producer_id, []).append(entry)
    stable = min([b[0].base_offset for b in open_batches.values()] + [end_offset])
    committed = [
        offset
        for entry in entries
        if entry.is_commit is None and entry.base_offset < stable
        if fates.get(entry.base_offset, True)
        for offset in range(entry.base_offset, entry.last_offset + 1)
    ]
    return Expected(stable, committed, aborted)


def committed_offsets(log: Log, size_max: int = 1 << 20) -> Iterator[int]:
    """Read as a read_committed consumer does: what fetches give, aborted batches left out."""
    offset = log.log_start_offset
    while found := log.read(offset, size_max, at_least_one=True, is_committed=True):
        waiting = aborted_within(log.segments, offset, found, log.log_end_offset)
        waiting.sort(reverse=True)
        ignored: set[int] = set()
        data = found.read()
        for position, header in iterate_batches(data):
            if position + header.size_bytes > len(data):
                break
            while waiting and waiting[-1].first_offset <= header.last_offset:
                ignored.add(waiting.pop().producer_id)
            if header.is_control:
                ignored.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ignored):
                yield from range(max(offset, header.base_offset), header.next_offset)
            offset = header.next_offset


def indexed(log: Log) -> list[AbortedTransaction]:
    """Read the transaction indexes of all segments, from their files."""
    found = []
    for segment in log.segments:
        path = segment.path(TXN_INDEX)
        if log._fs.exists(path):
            here = parse_aborted(log._fs.read_bytes(path), path)
            assert here, "an index without entries is no file"
            assert all(
                segment.base_offset <= one.last_offset < segment.next_offset for one in here
            )
            found += here
    return found
