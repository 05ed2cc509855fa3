"""A copy of a log that another host has: it grows until the partition moves here.

    data/orders-0.81d7…-future/
      odradek-copied-log            {"version": 1, "node_id": 2, "move": 7, "begun_ms": 17…}
      partition.metadata            the topic's id
      00000000000000008192.log  …   as in every log

1. All batches that a copy has are on the disk when append() returns.
2. A host that serves a partition has at most one copy of it. It is the whole log, which has not
   got its own name yet: take_copies() gives it that name.

The directory that a host leaves behind has a mark until it is removed:

    data/orders-0/
      odradek-moved-away            {"version": 1, "leader_epoch": 7}
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader
from odradek.protocol.legacy import stored_crc
from odradek.storage.checkpoints import LeftLog, TopicPartition
from odradek.storage.copying import append_copied
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import CorruptBatch, CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.partition_directories import (
    PARTITION_METADATA,
    future_name,
    list_futures,
    note_topic_id,
    read_topic_id,
)
from odradek.storage.readable_log import LogIdentity
from odradek.storage.recovery import Checkpointed, load_log
from odradek.storage.scan import whole_batches

logger = logging.getLogger(__name__)

_MARK, _MOVED_AWAY = "odradek-copied-log", "odradek-moved-away"
_VERSION = 1
_MARK_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that makes a copy, and the number of the move for which it does."""

    node_id: int
    move: int


class CopiedLog:
    """A growing copy of a log. Its owner calls one method at a time; they may run in a thread."""

    def __init__(
        self, fs: FileSystem, home: LogDirectory, log: Log, directory: Path, begun_ms: int
    ) -> None:
        self._fs, self._home, self._log = fs, home, log
        self._directory, self.begun_ms = directory, begun_ms

    @property
    def name(self) -> str:
        """The name of the partition."""
        return self._log.name

    @property
    def home(self) -> LogDirectory:
        """The log directory that holds it."""
        return self._home

    @property
    def end_offset(self) -> int:
        """The offset after its last batch; all before it is on the disk."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last batch, -1 while it is empty."""
        return self._log.epochs[-1][0] if self._log.epochs else -1

    @property
    def size_bytes(self) -> int:
        """The size of its batches."""
        return self._log.size_bytes

    def append(self, records: bytes, now_ms: int) -> None:
        """Append the whole batches of a leader's answer to a fetch, durably.

        Batches that it has already are left out. Raises CorruptBatch and DiskFailure; then the
        copy is not used again, but may be resumed.
        """
        data, end_before = memoryview(records), self.end_offset
        for position, header in whole_batches(data):
            if header.base_offset >= self.end_offset:
                self._append(header, data[position : position + header.size_bytes], now_ms)
            elif header.last_offset >= self.end_offset:
                raise CorruptBatch(
                    f"{self._log.name}: a batch of offsets {header.base_offset} to "
                    f"{header.last_offset} overlaps the copy, which ends at {self.end_offset}"
                )
        if self.end_offset == end_before:
            raise CorruptBatch(f"{self._log.name}: no batch at or after {end_before} in an answer")
        unflushed = self._log.unflushed()
        unflushed.sync()
        self._log.flushed(unflushed.end_offset)

    def _append(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        if stored_crc(header, batch) != header.crc:
            name = self._log.name
            raise CorruptBatch(f"{name}: the batch at {header.base_offset} has a wrong CRC")
        append_copied(self._log, header, batch, now_ms)

    def close(
        self, log_start_offset: int, end_offset: int = -1, producers: bytes | None = None
    ) -> LeftLog:
        """Close the copy, which is used as the log from here on, with the log's start.

        The log's end is given if compaction may have removed the last batches, and the snapshot
        of its producers if that may have more than the batches show. Raises DiskFailure.
        """
        if end_offset > self.end_offset:
            self._log.log_end_offset = end_offset
            self._log.roll(self.begun_ms, "the last batches were compacted away")
        self._log.advance_start_offset(min(log_start_offset, self.end_offset))
        self._log.close()
        if producers is not None:
            path = self._log.producers.snapshot_path(self.end_offset)
            self._fs.write_atomically(path, producers)
        return LeftLog(
            self._log.recovery_point, self._log.log_start_offset, None, is_clean=True
        )

    def discard(self) -> None:
        """Remove the copy."""
        if self._fs.exists(self._directory):
            self._home.remove([self._home.vacate(self._directory.name)])


def begin_copy(
    fs: FileSystem,
    home: LogDirectory,
    identity: LogIdentity,
    owner: Owner,
    config: TopicConfig,
    start_offset: int,
    now_ms: int,
) -> CopiedLog:
    """Begin an empty copy of a broker, durably, whose first batch has an offset.

    Raises DiskFailure.
    """
    directory = home.path / future_name(identity.topic, identity.partition)
    fs.make_directory(directory)
    note_topic_id(fs, directory, identity.topic_id)
    _write(fs, directory / _MARK, node_id=owner.node_id, move=owner.move, begun_ms=now_ms)
    fs.sync_directory(directory)
    home.sync()
    checkpointed = Checkpointed(start_offset, start_offset, was_clean=True, is_copy=True)
    return _load(fs, home, directory, identity, config, checkpointed, now_ms, now_ms)


def resume_copy(
    fs: FileSystem,
    home: LogDirectory,
    identity: LogIdentity,
    owner: Owner,
    config: TopicConfig,
    now_ms: int,
) -> CopiedLog | None:
    """Continue the copy that the last stop of its owner interrupted; None without one.

    Raises DiskFailure.
    """
    for found in find_copies(fs, home):
        if found.is_of(identity) and found.owner == owner:
            directory = home.path / found.name
            checkpointed = Checkpointed(0, 0, was_clean=False, is_copy=True)
            return _load(
                fs, home, directory, identity, config, checkpointed, found.begun_ms, now_ms
            )
    return None


def _load(
    fs: FileSystem,
    home: LogDirectory,
    directory: Path,
    identity: LogIdentity,
    config: TopicConfig,
    checkpointed: Checkpointed,
    begun_ms: int,
    now_ms: int,
) -> CopiedLog:
    log = load_log(
        fs,
        directory,
        identity,
        config,
        checkpointed,
        now_ms=now_ms,
        random_source=random.Random(begun_ms),
    )
    return CopiedLog(fs, home, log, directory, begun_ms)


# --- directories -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundCopy:
    """The directory of a copy."""

    name: str
    key: TopicPartition
    topic_id: bytes
    owner: Owner
    begun_ms: int

    def is_of(self, identity: LogIdentity) -> bool:
        """Return whether it is a copy of a log."""
        log = identity.topic, identity.partition, identity.topic_id
        return (*self.key, self.topic_id) == log


def find_copies(fs: FileSystem, home: LogDirectory) -> list[FoundCopy]:
    """Return the copies in a log directory; one whose files are damaged is left out."""
    found = []
    for name, key in list_futures(fs, home.path).items():
        directory = home.path / name
        mark = _read(fs, directory / _MARK)
        topic_id = read_topic_id(fs, directory / PARTITION_METADATA)
        if mark is not None and topic_id is not None:
            owner = Owner(mark.get("node_id", -1), mark.get("move", -1))
            found.append(FoundCopy(name, key, topic_id, owner, mark.get("begun_ms", 0)))
    return found


def is_copy(fs: FileSystem, directory: Path) -> bool:
    """Return whether a directory is a copy of another host's log."""
    return fs.exists(directory / _MARK)


def take_copies(
    fs: FileSystem, homes: Sequence[LogDirectory], topic_ids: Mapping[TopicPartition, bytes]
) -> dict[Path, TopicPartition]:
    """Give copies the names of their logs; return these directories.

    `topic_ids` are the partitions that this host serves and that are not open. Older files of
    them, from an earlier time when this host served them, are removed.
    """
    taken = {}
    for home in homes:
        for found in find_copies(fs, home):
            if topic_ids.get(found.key) != found.topic_id:
                continue
            topic, number = found.key
            directory = home.path / f"{topic}-{number}"
            for other in homes:
                if fs.exists(other.path / directory.name):
                    other.remove([other.vacate(directory.name)])
            fs.rename(home.path / found.name, directory)
            home.sync()
            fs.remove(directory / _MARK)
            logger.info("took a copy as the log path=%s", directory)
            taken[directory] = found.key
    return taken


def discard_copies(
    fs: FileSystem, homes: Sequence[LogDirectory], identity: LogIdentity
) -> None:
    """Remove the copies of a log."""
    for home in homes:
        for found in find_copies(fs, home):
            if found.is_of(identity):
                home.remove([home.vacate(found.name)])


def mark_moved(fs: FileSystem, directory: Path, leader_epoch: int) -> None:
    """Note durably that another host is about to serve a log, from a leader epoch on."""
    _write(fs, directory / _MOVED_AWAY, leader_epoch=leader_epoch)


def has_moved(fs: FileSystem, directory: Path, leader_epoch: int) -> bool:
    """Return whether a log in a directory was left for a host that serves it in an epoch."""
    mark = _read(fs, directory / _MOVED_AWAY)
    return mark is not None and mark.get("leader_epoch", leader_epoch + 1) <= leader_epoch


def _write(fs: FileSystem, path: Path, **values: int) -> None:
    fs.write_atomically(path, (json.dumps({"version": _VERSION, **values}) + "\n").encode())


def _read(fs: FileSystem, path: Path) -> Mapping[str, int] | None:
    if not fs.exists(path):
        return None
    try:
        read = json.loads(fs.read_bytes(path, _MARK_BYTES_MAX))
    except (ValueError, CorruptFile) as error:
        logger.warning("left alone a directory whose mark is damaged path=%s: %s", path, error)
        return None
    values = read if isinstance(read, dict) else {}
    return {name: value for name, value in values.items() if isinstance(value, int)}
