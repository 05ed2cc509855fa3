"""Transactions in a log: the markers that end them, and the index of the aborted ones.

A segment's `.txnindex` names the aborted transactions whose markers lie in the segment:

    | version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | stable offset i64 |

First and last offset are those of the transaction, its marker included; the stable offset is
the last stable offset when it was aborted. Last offsets grow from entry to entry. Without
entries there is no file. Source: AbortedTxn and TransactionIndex of Kafka 4.3.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import BatchHeader
from odradek.protocol.control import ControlType, decode_control, encode_end_txn_marker
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import CorruptFile, DiskFailure
from odradek.storage.files import Buffer, File, FileSystem

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """An entry of a transaction index. Entries are ordered by their first offsets."""

    first_offset: int
    last_offset: int
    producer_id: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction; `timestamp` is in ms.

    From transaction version 2 on (KIP-890) the end of each transaction raises the producer's
    epoch, and the marker has the new one.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    timestamp: int
    transaction_version: int = 0  # not in the log

    def encode(self) -> bytes:
        """Return the control batch."""
        return encode_end_txn_marker(
            commit=self.is_commit,
            timestamp=self.timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
        )


def read_marker(header: BatchHeader, batch: Buffer) -> Marker | None:
    """Return the marker in a control batch, None for another kind or when its record is gone."""
    if header.count == 0:
        return None
    try:
        record = decode_records(batch)[0]
        control = decode_control(record)
    except ProtocolError:
        return None
    if control.coordinator_epoch is None:
        return None
    return Marker(
        header.producer_id,
        header.producer_epoch,
        control.coordinator_epoch,
        control.type == ControlType.COMMIT,
        record.timestamp,
    )


def pack_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of a transaction index."""
    return b"".join(
        _ENTRY.pack(_VERSION, t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
        for t in transactions
    )


def parse_aborted(data: Buffer, path: Path) -> list[AbortedTransaction]:
    """Parse a transaction index. Raises CorruptFile, with the index's path."""
    found: list[AbortedTransaction] = []
    whole = len(data) - len(data) % _ENTRY.size
    for position in range(0, whole, _ENTRY.size):
        version, producer_id, first, last, stable = _ENTRY.unpack_from(data, position)
        if version != _VERSION:
            raise CorruptFile(path, position, f"version {version}, expected {_VERSION}")
        if not first < last or (found and last <= found[-1].last_offset):
            raise CorruptFile(path, position, f"no transaction ends at offset {last} here")
        found.append(AbortedTransaction(first, last, producer_id, stable))
    if whole < len(data):
        raise CorruptFile(path, whole, f"{len(data) - whole} bytes are no entry")
    return found


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, which owns this index.

    The log's owner appends; others may look up meanwhile.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs, self.path = fs, path
        self._file: File | None = None
        self._data: bytearray | None = None  # the contents of the file, once read
        self._is_dirty = False
        # The damage that makes the whole file unusable, when one is known.
        self.damage: CorruptFile | None = None

    def load(self) -> bytearray:
        """Return the bytes of the entries, as in the file. Raises CorruptFile."""
        data = self._data
        if data is None:
            data = bytearray()
            if self._fs.exists(self.path):
                data += self._fs.read_bytes(self.path)
                if not parse_aborted(data, self.path):
                    raise CorruptFile(self.path, 0, "its entries are lost")
            self._data = data
        return data

    def check(self, base_offset: int, end_offset: int) -> None:
        """Raise CorruptFile unless every entry is whole, with its marker between the offsets."""
        if self.damage is not None:
            raise self.damage
        try:
            for at, transaction in enumerate(parse_aborted(self.load(), self.path)):
                if not base_offset <= transaction.last_offset < end_offset:
                    cause = f"no marker at offset {transaction.last_offset} can lie in the segment"
                    raise CorruptFile(self.path, at * _ENTRY.size, cause)
        except CorruptFile as damage:
            self.damage = damage  # restore() keeps nothing of it then
            raise

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions that overlap the offsets; True if later segments have none."""
        data = self.load()
        if not data:  # as in nearly all segments: each fetch of a reader checks all that follow
            return [], False
        entries = range(len(data) // _ENTRY.size)
        first = bisect_left(
            entries, start_offset, key=lambda at: _ENTRY.unpack_from(data, at * _ENTRY.size)[3]
        )
        found: list[AbortedTransaction] = []
        for at in entries[first:]:
            _, producer_id, begin, last, stable = _ENTRY.unpack_from(data, at * _ENTRY.size)
            if begin < end_offset:
                found.append(AbortedTransaction(begin, last, producer_id, stable))
            if stable >= end_offset:
                return found, True
        return found, False

    @property
    def is_empty(self) -> bool:
        """Whether the segment has no marker of an aborted transaction. Raises CorruptFile."""
        return not self.load()

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction; when the write fails nothing has changed."""
        data = self.load()
        if self._file is None:
            self._file = self._fs.open(self.path, write=True)
        entry = pack_aborted([transaction])
        try:
            self._file.append(len(data), [entry])
        except BaseException:
            with contextlib.suppress(DiskFailure):
                self._file.truncate(len(data))
            raise
        data += entry
        self._is_dirty = True

    def restore(self, start_offset: int, transactions: Iterable[AbortedTransaction]) -> None:
        """Replace the entries by those that a replay of the log from an offset on has found.

        The change is atomic and durable. Transactions that ended before the offset stay.
        """
        kept: list[AbortedTransaction] = []
        if self.damage is None:
            with contextlib.suppress(CorruptFile):
                kept = [
                    one
                    for one in parse_aborted(self.load(), self.path)
                    if one.last_offset < start_offset
                ]
        data = pack_aborted([*kept, *transactions])
        if self._data is None or data != self._data:
            if data:
                self._fs.write_atomically(self.path, data)
            else:
                self._fs.remove(self.path)
        self._file, self._data, self.damage = None, bytearray(data), None

    @property
    def is_dirty(self) -> bool:
        """Whether the file has entries that may not be durable."""
        return self._is_dirty

    def sync(self) -> None:
        """Make the appended entries durable."""
        if self._is_dirty and self._file is not None:
            self._is_dirty = False
            try:
                self._file.sync()
            except BaseException:
                self._is_dirty = True
                raise

    def move(self, path: Path) -> None:
        """Note that the file has another name."""
        self.path = path
