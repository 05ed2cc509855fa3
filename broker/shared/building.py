"""Builds the logs of shared partitions from their segments and the WAL; all of it in threads.

Sealed segments stay in the bucket until they are read. The last upload of a segment that was not
sealed, and the batches that only the WAL has, are appended again: that rebuilds their indexes, the
producers and the leader epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from odradek.broker.catalog.segment_rows import SegmentRow, StoredLog
from odradek.broker.catalog.wal_reading import Batches
from odradek.broker.ids import Partition
from odradek.broker.shared.packing import add_remotes, packed_segment
from odradek.broker.topics.states import Wanted
from odradek.broker.wal.entries import DamagedEntry, Run
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.copying import append_copied
from odradek.storage.epochs import FILE_NAME
from odradek.storage.errors import BucketFailure, NotLeader, StorageError
from odradek.storage.files import Buffer
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.packs import EPOCHS, read_packed_file
from odradek.storage.objects.store import ObjectStore, ObjectStoreError
from odradek.storage.readable_log import LogIdentity
from odradek.storage.scan import whole_batches
from odradek.storage.segment import LOG, SNAPSHOT, file_name

logger = logging.getLogger(__name__)

NOTHING = StoredLog(0, 0, ())
Built = Log | StorageError


class Builder:
    """Has the parts of a broker that building takes."""

    def __init__(self, store: ObjectStore, files: CachedFiles, home: CacheDirectory) -> None:
        self._store, self._files, self._home = store, files, home
        # Set once the broker is to stop: the logs that are not open by then are left to others.
        self.is_stopping = False

    def begin(
        self, wanted: Sequence[Wanted], stored: Mapping[Partition, StoredLog], now_ms: int
    ) -> dict[Partition, Built]:
        """Return logs with their stored segments, and errors of those that cannot be built."""
        return {
            one.key: self._try_begin(one, stored.get(one.key, NOTHING), now_ms) for one in wanted
        }

    def _try_begin(self, wanted: Wanted, stored: StoredLog, now_ms: int) -> Built:
        try:
            return self._begin(wanted, stored, now_ms)
        except NotLeader as error:
            return error
        except (StorageError, ObjectStoreError) as error:
            return _failure(wanted.name, error)
        except Exception as error:  # A bug: the other logs must be opened all the same.
            logger.exception("cannot open log=%s", wanted.name)
            return _failure(wanted.name, error)

    def _begin(self, wanted: Wanted, stored: StoredLog, now_ms: int) -> Log:
        self._go_on(wanted)
        record = wanted.record
        directory = self._home.begin_directory(record.name, wanted.number)
        sealed = [row for row in stored.segments if not row.is_open]
        for row in sealed:
            add_remotes(self._files, self._store, row, directory / file_name(row.base_offset))
        opened = [row for row in stored.segments if row.is_open]
        end_offset = sealed[-1].next_offset if sealed else stored.stored_offset
        if opened:
            end_offset = opened[0].base_offset
        for kind, name in ((SNAPSHOT, file_name(end_offset) + SNAPSHOT), (EPOCHS, FILE_NAME)):
            for row in (*opened, *sealed[-1:]):
                self._go_on(wanted)
                data = self._read(row, kind)
                if data is not None:
                    self._files.write_bytes(directory / name, bytes(data))
                    break
        identity = LogIdentity(record.name, wanted.number, record.topic_id)
        log = self._home.load_log(identity, wanted.config, end_offset, now_ms)
        for row in opened:
            self._go_on(wanted)
            batches = memoryview(read_packed_file(self._store, row.key, packed_segment(row), LOG))
            for position, header in whole_batches(batches):
                batch = batches[position : position + header.size_bytes]
                append_copied(log, header, batch, now_ms, may_roll=False)
        return log

    def _go_on(self, wanted: Wanted) -> None:
        """Look whether the broker is to stop, before each request. Raises NotLeader."""
        if self.is_stopping:
            raise stops(wanted)

    def _read(self, row: SegmentRow, kind: str) -> Buffer | None:
        segment = packed_segment(row)
        if kind not in segment.files:
            return None
        return read_packed_file(self._store, row.key, segment, kind)

    def append(
        self, built: dict[Partition, Built], some: Sequence[tuple[Run, Batches]], now_ms: int
    ) -> None:
        """Append committed batches; a log that lacks some cannot be built."""
        for run, batches in some:
            log = built[run.partition]
            if not isinstance(log, Log):
                continue
            try:
                if isinstance(batches, DamagedEntry):
                    raise batches
                append_run(log, batches, now_ms)
            except (StorageError, DamagedEntry) as error:
                built[run.partition] = _failure(log.name, error)

    def finish(
        self,
        wanted: Sequence[Wanted],
        built: dict[Partition, Built],
        stored: Mapping[Partition, StoredLog],
        now_ms: int,
    ) -> None:
        """Let the logs begin where the catalog says, and continue in their leaders' epochs."""
        for one in wanted:
            log, start = built[one.key], stored.get(one.key, NOTHING).log_start_offset
            if not isinstance(log, Log):
                continue
            if log.log_end_offset < start:  # in a catalog whose WAL forgot deleted records
                identity = LogIdentity(log.topic, log.partition, log.topic_id)
                self._home.begin_directory(log.topic, log.partition)
                log = built[one.key] = self._home.load_log(identity, one.config, start, now_ms)
            log.advance_start_offset(start)
            log.leader_epoch = log.epochs[-1][0] if log.epochs else -1
            log.raise_epoch(one.record.leaders[one.number].epoch)


def append_run(log: Log, batches: memoryview, now_ms: int) -> None:
    """Append the committed batches that a log does not have. Raises StorageError."""
    for position, header in whole_batches(batches):
        end_offset = log.log_end_offset
        if header.base_offset < end_offset:
            continue
        if header.base_offset > end_offset and log.size_bytes:
            raise BucketFailure(
                f"the WAL lacks the records from offset {end_offset} to {header.base_offset - 1}"
            )
        batch = batches[position : position + header.size_bytes]
        append_copied(log, header, batch, now_ms)


def stops(wanted: Wanted) -> NotLeader:
    """Return the error of a partition that a broker which is to stop does not open any more."""
    return NotLeader(f"{wanted.name} is left to another broker: this one stops")


def _failure(name: str, error: Exception) -> BucketFailure:
    return BucketFailure(f"{name} cannot be read back: {error}")
