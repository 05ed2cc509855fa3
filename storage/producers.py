"""A log's state of its producers: epochs, sequences, last batches, open transactions.

Duplicates are recognised among each producer's last five batches (Kafka's limit, since a client
has at most five requests in flight). A transaction is open from its first batch to the marker
that ends it. The state is rebuilt from the log, and snapshots save reading all of it
(storage/producer_snapshots.py).

Behaviour follows Kafka's ProducerStateManager and ProducerAppendInfo. On one node every batch in
the log counts as replicated, so a transaction is stable as soon as it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.batches import NO_PRODUCER_ID, TRANSACTIONAL_BIT, BatchHeader
from odradek.storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.first_batches import FirstBatches
from odradek.storage.producer_snapshots import SnapshotEntry, pack_snapshot, unpack_snapshot
from odradek.storage.segment import SNAPSHOT, file_name
from odradek.storage.transactions import AbortedTransaction, Marker, read_marker

BATCHES_REMEMBERED = 5
NO_SEQUENCE = -1
NO_PRODUCER = -1
NO_EPOCH = -1

_SEQUENCE_MODULUS = 1 << 31
_EPOCH_MAX = 2**15 - 1
# From this transaction version on (KIP-890) the end of a transaction raises the producer's epoch.
_EPOCH_RAISED_SINCE = 2


@dataclass(frozen=True, slots=True)
class RememberedBatch:
    """A batch by which a duplicate is recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the batch's first record."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_MODULUS

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


_NO_BATCH = RememberedBatch(NO_SEQUENCE, -1, 0, -1)


@dataclass(slots=True)
class ProducerState:
    """One producer; owned by its log's ProducerStates."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_first_offset: int = -1
    batches: list[RememberedBatch] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last record, -1 when there is none."""
        return self.batches[-1].last_offset if self.batches else -1

    def remember(self, batch: RememberedBatch) -> None:
        """Note the newest batch, and forget the oldest when there are too many."""
        self.batches.append(batch)
        if len(self.batches) > BATCHES_REMEMBERED:
            del self.batches[0]


class ProducerStates:
    """The producers of one log; owned by its Log."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs, self._directory = fs, directory
        self._producers: dict[int, ProducerState] = {}
        self._unsynced: list[Path] = []
        # The producer of each open transaction, by the first offset, in the order of offsets.
        self._open: dict[int, int] = {}
        self.first_batches = FirstBatches()
        # The first offset of the oldest open transaction: read with each fetch.
        self.first_open_offset: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, None when it is not known."""
        return self._producers.get(producer_id)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer's transaction has batches here, of this epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.transaction_first_offset >= 0 and known.epoch == epoch

    def check(self, batch: BatchHeader, *, from_client: bool) -> RememberedBatch | None:
        """Check that a batch may be appended; return the batch that a client repeats, if any.

        Only clients number their batches. Raises InvalidProducerEpoch, OutOfOrderSequence or
        InvalidTransactionState.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            if batch.producer_epoch < 0:
                raise InvalidProducerEpoch(f"producer {batch.producer_id} wrote without an epoch")
            if self.first_batches and from_client:
                self.first_batches.check(batch)
            return None
        if batch.producer_epoch < known.epoch:
            raise _fenced(batch, known.epoch)
        if from_client and batch.producer_epoch > known.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} began epoch {batch.producer_epoch} "
                    f"with sequence {batch.base_sequence}, expected 0"
                )
        elif from_client:
            last_sequence = batch.last_sequence
            for remembered in known.batches:
                if (
                    remembered.first_sequence == batch.base_sequence
                    and remembered.last_sequence == last_sequence
                ):
                    return remembered
            expected = (known.last_sequence + 1) % _SEQUENCE_MODULUS
            if batch.base_sequence != expected:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} wrote sequence {batch.base_sequence}, "
                    f"expected {expected}"
                )
        if known.transaction_first_offset >= 0 and not batch.is_transactional:
            raise InvalidTransactionState(
                f"producer {batch.producer_id} wrote outside of the transaction that it began "
                f"at offset {known.transaction_first_offset}"
            )
        return None

    def check_marker(self, marker: Marker) -> None:
        """Check that a marker may be appended.

        Raises InvalidProducerEpoch or TransactionCoordinatorFenced.
        """
        known = self._producers.get(marker.producer_id)
        if known is None:
            if marker.producer_epoch < NO_EPOCH:
                raise _fenced(marker, NO_EPOCH)
            return
        # The marker of a transaction that has ended may be written again.
        is_raised = (
            marker.transaction_version >= _EPOCH_RAISED_SINCE
            and known.transaction_first_offset >= 0
            and known.epoch < _EPOCH_MAX
        )
        if marker.producer_epoch < known.epoch + is_raised:
            raise _fenced(marker, known.epoch)
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator epoch {marker.coordinator_epoch} ended a transaction of producer "
                f"{marker.producer_id}, epoch {known.coordinator_epoch} has taken over"
            )

    def update(self, batch: BatchHeader, last_offset: int) -> None:
        """Note a batch, not a marker, that was appended or read back from the log."""
        if self.first_batches and batch.attributes & TRANSACTIONAL_BIT:
            self.first_batches.came(batch.producer_id)
        known = self._producers.get(batch.producer_id)
        if known is None or batch.producer_epoch != known.epoch:
            known = self._in_epoch(batch.producer_id, batch.producer_epoch)
        delta = batch.last_offset_delta
        if batch.attributes & TRANSACTIONAL_BIT and known.transaction_first_offset < 0:
            self._begin(known, last_offset - delta)
        known.remember(
            RememberedBatch(batch.last_sequence, last_offset, delta, batch.max_timestamp)
        )
        known.last_timestamp = batch.max_timestamp

    def aborted_by(self, marker: Marker, offset: int) -> AbortedTransaction | None:
        """Return the transaction that a marker at an offset aborts, if any."""
        known = self._producers.get(marker.producer_id)
        if marker.is_commit or known is None or known.transaction_first_offset < 0:
            return None
        others = (first for first, one in self._open.items() if one != marker.producer_id)
        return AbortedTransaction(
            known.transaction_first_offset, offset, marker.producer_id, next(others, offset + 1)
        )

    def end_transaction(self, marker: Marker) -> bool:
        """Note a marker that was appended; return whether the first open offset has moved."""
        first_open = self.first_open_offset
        self.first_batches.ended(marker.producer_id, marker.producer_epoch)
        known = self._in_epoch(marker.producer_id, marker.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.last_timestamp = marker.timestamp
        if known.transaction_first_offset >= 0:
            self._open.pop(known.transaction_first_offset, None)
            self.first_open_offset = next(iter(self._open), None)
            known.transaction_first_offset = -1
        return self.first_open_offset != first_open

    def replay(self, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
        """Note a batch that was read back from the log; return the transaction that it aborts."""
        if not header.is_control:
            self.update(header, header.last_offset)
            return None
        marker = read_marker(header, batch)
        if marker is None:
            return None
        aborted = self.aborted_by(marker, header.base_offset)
        self.end_transaction(marker)
        return aborted

    def _in_epoch(self, producer_id: int, epoch: int) -> ProducerState:
        """Return a producer's state; batches of another epoch are forgotten."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = ProducerState(producer_id, epoch)
        elif epoch != known.epoch:
            known.epoch = epoch
            known.batches.clear()
        return known

    def _begin(self, state: ProducerState, offset: int) -> None:
        state.transaction_first_offset = offset
        self._open[offset] = state.producer_id
        if self.first_open_offset is None:
            self.first_open_offset = offset

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that have been idle for too long; return their number."""
        expired = [
            state.producer_id
            for state in self._producers.values()
            if state.transaction_first_offset < 0
            and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self.first_batches.expire(now_ms, expiration_ms)
        return len(expired)

    def move(self, directory: Path) -> None:
        """Keep the snapshots in another directory from now on."""
        self._directory, self._unsynced = directory, []

    def clear(self) -> None:
        """Forget all producers."""
        self._producers.clear()
        self.first_batches = FirstBatches()
        self._open.clear()
        self.first_open_offset = None

    def write_snapshot(self, offset: int) -> None:
        """Write the state before an offset to its snapshot file; take_unsynced() returns it next.

        A producer whose batches were compacted away is in snapshots only, so they are synced
        before the recovery point passes them.
        """
        path = self.snapshot_path(offset)
        self._fs.write_bytes(path, self.snapshot())
        self._unsynced.append(path)

    def snapshot(self) -> bytes:
        """Return the state as a snapshot file has it."""
        entries: list[SnapshotEntry] = []
        # In the order of Kafka's hash map, as long as the ids are small.
        for _, state in sorted(self._producers.items()):
            for batch in state.batches[:-1]:
                entries.append(_entry(state, batch, batch.timestamp, -1))
            last = state.batches[-1] if state.batches else _NO_BATCH
            first_offset = state.transaction_first_offset
            entries.append(_entry(state, last, state.last_timestamp, first_offset))
        return pack_snapshot(entries)

    def take_unsynced(self) -> tuple[Path, ...]:
        """Return the snapshots written since the last call; the caller syncs them."""
        taken, self._unsynced = tuple(self._unsynced), []
        return taken

    def read_snapshot(self, offset: int) -> None:
        """Replace the state by that of a snapshot file.

        Raises CorruptFile for a file whose CRC, version or size is wrong.
        """
        entries = unpack_snapshot(self._fs, self.snapshot_path(offset))
        self.clear()
        begun: list[tuple[int, ProducerState]] = []
        for entry in entries:
            producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator, txn = entry
            state = self._in_epoch(producer_id, epoch)
            state.coordinator_epoch, state.last_timestamp = coordinator, timestamp
            if last_offset >= 0:
                state.remember(RememberedBatch(sequence, last_offset, delta, timestamp))
            if txn >= 0:
                begun.append((txn, state))
        for first_offset, state in sorted(begun, key=lambda one: one[0]):
            self._begin(state, first_offset)

    def count_snapshot(self, offset: int) -> tuple[int, int]:
        """Return a snapshot's largest producer id, -1 for none, and count its open transactions.

        Changes no state. Raises CorruptFile.
        """
        largest, begun_count = NO_PRODUCER_ID, 0
        for entry in unpack_snapshot(self._fs, self.snapshot_path(offset)):
            largest = max(largest, entry.producer_id)
            begun_count += entry.transaction_first_offset >= 0
        return largest, begun_count

    def snapshot_offsets(self) -> list[int]:
        """Return the offsets that have a snapshot, in ascending order."""
        return [
            int(name.removesuffix(SNAPSHOT))
            for name in self._fs.list(self._directory)
            if name.endswith(SNAPSHOT) and name.removesuffix(SNAPSHOT).isdecimal()
        ]

    def remove_snapshot(self, offset: int) -> None:
        """Remove a snapshot file."""
        self._fs.remove(self.snapshot_path(offset))

    def sync_directory(self) -> None:
        """Make the removal of snapshots durable."""
        self._fs.sync_directory(self._directory)

    def snapshot_path(self, offset: int) -> Path:
        """Return the path of the snapshot before an offset."""
        return self._directory / (file_name(offset) + SNAPSHOT)


def _entry(
    state: ProducerState, batch: RememberedBatch, timestamp: int, transaction_first_offset: int
) -> SnapshotEntry:
    return SnapshotEntry(
        state.producer_id,
        state.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        state.coordinator_epoch,
        transaction_first_offset,
    )


def _fenced(written: BatchHeader | Marker, epoch: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {written.producer_id} wrote with epoch {written.producer_epoch}, "
        f"its current epoch is {epoch}: another instance took over"
    )
