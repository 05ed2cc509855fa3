"""A segment: a `.log` file of record batches with its two indexes.

The file's name is the segment's base offset in 20 digits. Batches lie back to back; after
compaction there may be gaps between their offsets, never a change of order.

    00000000000000000042.log  .index  .timeindex  .snapshot  .txnindex  .keys
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader
from odradek.storage.errors import CorruptFile, DiskFailure
from odradek.storage.files import Buffer, File, FileSystem, Opened
from odradek.storage.index import OffsetIndex, TimeIndex
from odradek.storage.lookup import Lookup
from odradek.storage.scan import Batches, Place
from odradek.storage.transactions import AbortedTransaction, TransactionIndex

logger = logging.getLogger(__name__)

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
SNAPSHOT, TXN_INDEX = ".snapshot", ".txnindex"
KEYS = ".keys"  # the cleaner's, see cleaner/passes/summary.py
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, KEYS)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

NAME_DIGITS = 20
NO_TIMESTAMP = -1
_REWRITTEN_BYTES = 4 << 20
# The number of ends that are remembered for readers.
_ENDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of a segment's file, which is read later."""

    file: File
    position: int
    size: int
    base_offset: int  # of the segment

    def read(self) -> bytes:
        """Read it, waiting for the disk if necessary."""
        return self.file.read(self.position, self.size)

    def read_cached(self) -> bytes | bytearray | None:
        """Read it from the page cache, or return None when it is not there."""
        return self.file.read_cached(self.position, self.size)


def file_name(base_offset: int) -> str:
    """Return the 20-digit name that a segment's files begin with."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def create_segment(
    fs: FileSystem, directory: Path, base_offset: int, log_bytes: int = 0
) -> Segment:
    """Begin an empty segment, removing files that a failed attempt may have left.

    The log file gets the size `log_bytes` at once, if that is not 0. The indexes, unlike Kafka's,
    are not preallocated: its own DumpLogSegments takes the zeros at a time index's end for damage.
    """
    stem = file_name(base_offset)
    for kind in SUFFIXES:
        fs.remove(directory / (stem + kind))
    made = Segment(fs, directory, base_offset)
    for entries in (made.offset_index.entries, made.time_index.entries):
        entries.begin()
        entries.trim()  # creates the file: Kafka's tools need it, however small the log
    made.transactions.load()  # now, before a thread could load it during an append
    if log_bytes:
        made.log.truncate(log_bytes)
    return made


class Segment:
    """One segment of a log. Only its log appends; anyone may read below `size_bytes`."""

    def __init__(
        self, fs: FileSystem, directory: Path, base_offset: int, *, suffix: str = ""
    ) -> None:
        self.fs = fs
        self.directory, self.base_offset, self.suffix = directory, base_offset, suffix
        path = self.path(LOG)
        self.log = fs.open(path, write=True)
        self._batches = Batches(self.log, path, self.log.size())
        self.created_ms = 0
        self.roll_jitter_ms = 0
        # Whether log and indexes are known to be on the disk, and no batch will follow.
        self.is_durable = False
        # Whether a crash keeps the names of its files: see Log.roll().
        self.has_durable_names = True
        # The error after which appended batches can no longer be made durable, or None.
        self.sync_failure: DiskFailure | None = None
        self.offset_index = OffsetIndex(fs, self.path(INDEX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX), base_offset)
        self.transactions = TransactionIndex(fs, self.path(TXN_INDEX))
        self._lookup = Lookup(self._batches, base_offset, self.offset_index, self.time_index)
        # Facts about the batches; for a segment loaded from disk, found when first used.
        self._next_offset = base_offset if self.size_bytes == 0 else None
        self._first_timestamp: int | None = None
        # The position of each damage that was found, and where the log continues after it.
        self._behind_damage: dict[int, int] = {}
        # Ends at which readers were lately: the position of the batch that follows, by its offset.
        self._ends: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"Segment({self.directory.name} base={self.base_offset} size={self.size_bytes})"

    def path(self, kind: str) -> Path:
        """Return the path of one of the segment's files, by its kind (".log", ".index", …)."""
        return self.directory / (file_name(self.base_offset) + kind + self.suffix)

    @property
    def size_bytes(self) -> int:
        """The size of all batches: where the next one goes."""
        return self._batches.size_bytes

    @property
    def offset_max(self) -> int:
        """The largest offset possible here."""
        return self._lookup.offset_max

    @property
    def next_offset(self) -> int:
        """The last offset + 1; the base offset when the segment is empty."""
        if self._next_offset is None:
            self._next_offset = self._lookup.next_offset()
        return self._next_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records in ms, -1 when there is none."""
        return self._lookup.largest[0]

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        return self._lookup.largest[1]

    @property
    def modified_ms(self) -> int:
        """The time when the file was last written."""
        return self.fs.modified_ms(self.path(LOG))

    def first_timestamp(self) -> int | None:
        """Return the largest timestamp of the first batch: the segment's age counts from it."""
        if self._first_timestamp is None and self.size_bytes:
            first = next(self._batches.walk_intact(0), None)
            self._first_timestamp = first[3] if first else NO_TIMESTAMP
        return self._first_timestamp

    # --- writing --------------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """Write one batch at the end, and index it when enough was written since the last entry.

        `aborted` is the transaction that the batch aborts, when it is such a marker. A failed
        write leaves the segment unchanged: bytes that got into the files are cut off again.
        """
        batches = self._batches
        position = batches.size_bytes
        try:
            self.log.append(position, buffers)
            self._lookup.append((position, size, last_offset, max_timestamp), index_interval_bytes)
            if aborted is not None:
                self.transactions.append(aborted)
        except BaseException:
            # Bytes that cannot be cut off now are overwritten by the next append or cut by seal().
            self._lookup.undo(last_offset)
            with contextlib.suppress(DiskFailure):
                self.log.truncate(position)
            raise
        if position == 0:
            self._first_timestamp = max_timestamp
        batches.size_bytes = position + size
        self._next_offset = last_offset + 1

    def seal(self) -> None:
        """Write the last time index entry and trim the files: no batch will follow."""
        if self.log.size() > self.size_bytes:  # an append failed, and so did its undoing
            self.log.truncate(self.size_bytes)
        self._lookup.seal()

    def sync_batches(self) -> None:
        """Make the batches durable, and the index of aborted transactions.

        Once this has failed it always fails: the system forgets the bytes that it could not
        write, so that no later sync is proof.
        """
        if self.sync_failure is not None:
            raise self.sync_failure
        try:
            self.log.sync()
            self.transactions.sync()
        except DiskFailure as error:
            self.sync_failure = error
            raise

    def file_to_sync(self) -> Opened | None:
        """Return the file whose sync is all that sync_batches() does; None if it does more.

        Raises DiskFailure.
        """
        if self.sync_failure is not None or self.transactions.is_dirty:
            return None
        return self.log.opened()

    def flush(self) -> None:
        """Make the log and its indexes durable."""
        self.sync_batches()
        self.offset_index.entries.sync()
        self.time_index.entries.sync()

    def rename(self, suffix: str) -> None:
        """Give all files of the segment another suffix; .log goes last, as it decides.

        When the disk refuses one, all get their old suffix back, as far as the disk allows.
        """
        kinds = (INDEX, TIME_INDEX, TXN_INDEX, KEYS)
        before = self.suffix
        moves = [(self.path(kind), kind) for kind in kinds if self.fs.exists(self.path(kind))]
        # Before the files: the old names may soon belong to another segment.
        self._take_suffix(suffix)
        try:
            for source, kind in moves:
                self.fs.rename(source, self.path(kind))
            self.log.rename(self.path(LOG))
        except DiskFailure:
            for source, kind in moves:
                if self.fs.exists(self.path(kind)):
                    with contextlib.suppress(DiskFailure):
                        self.fs.rename(self.path(kind), source)
            self._take_suffix(before)
            raise
        self._batches.path = self.path(LOG)

    def _take_suffix(self, suffix: str) -> None:
        self.suffix = suffix
        self.offset_index.entries.move(self.path(INDEX))
        self.time_index.entries.move(self.path(TIME_INDEX))
        self.transactions.move(self.path(TXN_INDEX))

    def follow(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        self._batches.path = self.path(LOG)
        self.offset_index.entries.move(self.path(INDEX))
        self.time_index.entries.move(self.path(TIME_INDEX))
        self.transactions.move(self.path(TXN_INDEX))
        self.log.follow(self._batches.path)

    def remove(self) -> None:
        """Remove the files; .log goes first, so that a crash leaves no log without an index."""
        for kind in SUFFIXES:
            self.fs.remove(self.path(kind))

    # --- reading --------------------------------------------------------------------------

    def locate(self, offset: int, *, may_wait: bool = True) -> tuple[int, int] | None:
        """Return (position, size) of the first batch that ends at or after an offset.

        Raises CorruptFile when the offset lies in a damaged part, and NotCached when it would
        have to wait for the disk and may not.
        """
        position = -1
        places = self._lookup.from_offset(offset, may_wait=may_wait)
        while True:
            try:
                for position, size, last_offset, _ in places:
                    if last_offset >= offset:
                        return position, size
                return None
            except CorruptFile as damage:
                places = self._walk_behind(damage, position, offset)

    def note_end(self) -> None:
        """Remember where the batches end now: a reader is here, and will go on from here.

        Call it in the thread that appends.
        """
        ends, offset = self._ends, self._next_offset
        if offset is not None and offset not in ends:
            if len(ends) >= _ENDS_MAX:
                del ends[next(iter(ends))]
            ends[offset] = self._batches.size_bytes

    def rest_from(self, offset: int) -> Slice | None:
        """Return all batches that follow an end which was noted; None for another offset."""
        position = self._ends.get(offset)
        if position is None:
            return None
        size = self._batches.size_bytes - position
        return Slice(self.log.hold(), position, size, self.base_offset)

    def _walk_behind(self, damage: CorruptFile, before: int, offset: int) -> Iterator[Place]:
        """Walk the batches after the damage; raises it when the offset lies in the damaged part.

        The damage may be in the length of the batch before, which led the walk astray.
        """
        position = self._behind_damage.get(damage.position)
        if position is None:
            bounds = self.base_offset, self.offset_max
            led_astray = before >= 0 and not self._batches.is_intact(before, *bounds)
            position = self.next_intact(before if led_astray else damage.position)
            logger.error("found damage: %s; continues at position %d", damage, position)
            self._behind_damage[damage.position] = position
        if position == self.size_bytes or self._batches.base_offset(position) > offset:
            raise damage
        return self._batches.walk(position)

    def position_of(self, offset: int, *, may_wait: bool = True) -> int:
        """Return the end of the batches wholly before an offset; raises the errors of locate()."""
        size_bytes = self.size_bytes  # now: another thread may append the batch of the offset
        found = self.locate(offset, may_wait=may_wait)
        return size_bytes if found is None else found[0]

    def locate_timestamp(self, timestamp: int, start_offset: int) -> Iterator[Slice]:
        """Yield the batches that may hold a record at or after a timestamp and an offset.

        Raises CorruptFile for damage in the way.
        """
        places = self._lookup.from_timestamp(timestamp, start_offset)
        for position, size, last_offset, largest in places:
            if largest >= timestamp and last_offset >= start_offset:
                yield Slice(self.log, position, size, self.base_offset)

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Read every batch from a position on: (position, header, bytes).

        Stops without an error at the first batch that is not whole: a caller may compare the end
        of the last batch with the size.
        """
        return self._batches.read(position)

    def next_intact(self, position: int) -> int:
        """Return the position of the next intact batch after a damaged one, or the size."""
        return self._batches.next_intact(position, self.base_offset, self.offset_max)

    # --- recovery -------------------------------------------------------------------------

    def check_tail(self) -> None:
        """Raise CorruptFile unless the indexes are whole and the last batch ends the file."""
        self._next_offset = self._lookup.check_tail()

    def rebuild_indexes(self, cause: CorruptFile) -> None:
        """Rebuild both indexes, and log the cause."""
        self._lookup.rebuild(cause)

    def check_batches(self, offset_max: int, index_interval_bytes: int) -> tuple[int, int]:
        """Re-read all batches, and index those before the first that is not intact.

        Returns the end of these and the next offset; cut() must follow. No offset may be larger
        than `offset_max`.
        """
        end, next_offset = 0, self.base_offset
        self._lookup.begin()
        for place in self._batches.check(0, next_offset, min(offset_max, self.offset_max)):
            self._lookup.note(place, index_interval_bytes)
            end, next_offset = place[0] + place[1], place[2] + 1
        return end, next_offset

    def cut(self, end: int, next_offset: int) -> None:
        """Cut off the bytes after the last batch that was checked; write the indexes."""
        if end < self.size_bytes:
            self.log.truncate(end)
            self._batches.size_bytes = end
        self._next_offset, self._first_timestamp = next_offset, None
        self._ends.clear()
        self._lookup.write()

    def write_again(self, offset: int) -> None:
        """Write the batches from an offset on again, in their place."""
        found = self.locate(offset)
        position = found[0] if found else self.size_bytes
        while position < self.size_bytes:
            data = self.log.read(position, min(_REWRITTEN_BYTES, self.size_bytes - position))
            position += self.log.append(position, (data,))
