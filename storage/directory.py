"""A log directory: the partitions below one entry of `log.dirs`, and the files beside them.

    data/
      .lock                              held while the broker runs
      .kafka_cleanshutdown               present after a clean stop only
      meta.properties                    cluster, node and directory ids
      cleaner-offset-checkpoint  recovery-point-offset-checkpoint
      log-start-offset-checkpoint  replication-offset-checkpoint
      odradek-adopted-epoch-checkpoint   from an adoption or an export to the first stop
      orders-0/                          a partition: topic, dash, number
      orders-1.2f0c…-delete/             a deleted partition, to be removed
      orders-2.81d7…-future/             an unfinished copy of a partition (storage.moving)

1. A checkpoint never replaces a later one, whichever thread stores it.
2. No log start offset is stored that lies past the log's recovery point.
3. The mark of a clean stop is written last, and only when every log is durable.
"""

from __future__ import annotations

import heapq
import json
import logging
import random
import threading
from collections.abc import Sequence
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.storage import checkpoints
from odradek.storage.checkpoints import Checkpoints, LeftLog, TopicPartition
from odradek.storage.errors import CorruptFile, DiskFailure, StorageError
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.meta_properties import META, check_meta
from odradek.storage.partition_directories import (
    DELETE_SUFFIX,
    deleted_name,
    list_futures,
    list_partitions,
    note_topic_id,
)
from odradek.storage.readable_log import LogIdentity
from odradek.storage.recovery import Checkpointed, load_log

logger = logging.getLogger(__name__)

CLEAN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
# Where Kafka's controller keeps the metadata, as odradek.db does here (see storage/kraft.py).
METADATA_DIRECTORY = "__cluster_metadata-0"
_OFFSETS = (
    checkpoints.CLEANER_OFFSETS,
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.ADOPTED_EPOCHS,
)


class LogDirectory:
    """The logs of one directory. The event loop owns it.

    The methods that wait for the disk may run in a thread: open_log(), sync(), move_out(),
    store() and remove().
    """

    def __init__(
        self, fs: FileSystem, path: Path, *, cluster_id: str, node_id: int, seed: int = 0
    ) -> None:
        self._fs, self.path = fs, path
        self.logs: dict[TopicPartition, Log] = {}
        # Partitions whose logs a disk failure has closed: their last batches are not known.
        self._suspect: set[TopicPartition] = set()
        self._removals: list[tuple[int, str]] = []
        self._random = random.Random(seed)
        self._checkpoint_number = 0
        self._stored: dict[str, int] = {}  # the number of each file's checkpoint
        self._storing = threading.Lock()
        self._lock: object | None = None
        self._begin(cluster_id, node_id)

    def _begin(self, cluster_id: str, node_id: int) -> None:
        fs, path = self._fs, self.path
        make_durable_directory(fs, path)
        self._lock = fs.lock(path / LOCK)
        try:
            self._read_state(cluster_id, node_id)
        except StorageError:
            self._lock = None  # the caller may try again, with the error still in hand
            raise
        for name in fs.list(path):
            if name.endswith(DELETE_SUFFIX):
                fs.remove_tree(path / name)

    def _read_state(self, cluster_id: str, node_id: int) -> None:
        check_meta(self._fs, self.path / META, cluster_id, node_id)
        # Copies that were not finished, by their names.
        self.futures_at_start = list_futures(self._fs, self.path)
        # The partitions found when the directory was opened, with the topic id noted in each.
        self.partitions_at_start = there = self.partitions()
        self.was_clean = self._fs.exists(self.path / CLEAN_MARKER) or not there
        self._fs.remove(self.path / CLEAN_MARKER)
        self._fs.sync_directory(self.path)
        # Offsets of removed partitions must not apply to new partitions of the same names.
        self.cleaner_offsets, self._recovery_points, self._start_offsets, self._adopted_epochs = (
            {key: offset for key, offset in self._read(name).items() if key in there}
            for name in _OFFSETS
        )

    def partitions(self) -> dict[TopicPartition, bytes | None]:
        """Return the partitions that have a directory here, with the topic id noted in it."""
        return list_partitions(self._fs, self.path)

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: TopicConfig, *, now_ms: int
    ) -> Log:
        """Load a partition's log, creating its directory when it does not exist."""
        log = self.open_log(LogIdentity(topic, partition, topic_id), config, now_ms=now_ms)
        self.sync()
        self.add(log)
        return log

    def open_log(
        self,
        identity: LogIdentity,
        config: TopicConfig,
        *,
        now_ms: int,
        failed: Log | None = None,
        left: LeftLog | None = None,
        leader_epoch_min: int = -1,
    ) -> Log:
        """Load a log, creating its directory when it does not exist: sync() and add() follow.

        `failed` is the log that a disk failure has closed, if any, and `left` the state in which
        another process left it. Raises DiskFailure.
        """
        key = identity.topic, identity.partition
        directory = self.path / f"{identity.topic}-{identity.partition}"
        is_new = not self._fs.exists(directory)
        if left is not None:
            self._note_left(key, left)
        if failed is not None:
            checkpointed = Checkpointed(
                failed.recovery_point,
                failed.log_start_offset,
                was_clean=False,
                must_rewrite=True,
                leader_epoch_min=leader_epoch_min,
            )
        else:
            checkpointed = Checkpointed(
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._start_offsets.get(key, 0),
                was_clean=is_new or self._was_clean(key, left),
                leader_epoch_min=max(leader_epoch_min, self._adopted_epochs.get(key, -1)),
            )
        log = load_log(
            self._fs,
            directory,
            identity,
            config,
            checkpointed,
            now_ms=now_ms,
            random_source=self._random,
        )
        note_topic_id(self._fs, directory, identity.topic_id)
        log.on_files_deleted = self.schedule_removal
        return log

    def _note_left(self, key: TopicPartition, left: LeftLog) -> None:
        self._recovery_points[key] = left.recovery_point
        self._start_offsets[key] = left.log_start_offset
        if left.cleaner_offset is not None:
            self.cleaner_offsets[key] = left.cleaner_offset

    def _was_clean(self, key: TopicPartition, left: LeftLog | None) -> bool:
        if left is not None:
            return left.is_clean
        return self.was_clean and key in self._recovery_points

    def sync(self) -> None:
        """Make the names of new and deleted logs durable."""
        self._fs.sync_directory(self.path)

    def add(self, log: Log) -> None:
        """Add a log that was opened."""
        self.logs[log.topic, log.partition] = log
        self._suspect.discard((log.topic, log.partition))

    def withdraw(self, log: Log) -> None:
        """Give up a log that a disk failure has closed; the offsets noted for it stay."""
        key = log.topic, log.partition
        del self.logs[key]
        self._recovery_points[key] = log.recovery_point
        self._start_offsets[key] = min(log.log_start_offset, log.recovery_point)
        self._suspect.add(key)

    def delete_log(self, log: Log, now_ms: int) -> None:
        """Delete a partition: its directory is renamed now and removed later."""
        log.is_deleted = True
        moved, refused = self.move_out([log])
        self.forget(moved, now_ms)
        if refused is not None:
            raise refused
        self.write_checkpoints()

    def move_out(
        self, logs: Sequence[Log]
    ) -> tuple[list[tuple[Log, Path]], DiskFailure | None]:
        """Rename the directories of deleted logs, durably; forget() follows.

        Returns the new paths, and the error that kept the rest of them in place, if any.
        """
        moved: list[tuple[Log, Path]] = []
        try:
            for log in logs:
                target = self.path / deleted_name(log.directory)
                self._fs.rename(log.directory, target)
                moved.append((log, target))
            self.sync()
        except DiskFailure as error:
            return moved, error
        return moved, None

    def forget(self, moved: Sequence[tuple[Log, Path]], now_ms: int) -> None:
        """Forget logs whose directories were renamed; write_checkpoints() follows."""
        for log, target in moved:
            key = log.topic, log.partition
            log.follow(target)
            del self.logs[key]
            self.forget_offsets(key)
            self.schedule_removal([target], now_ms + log.config.file_delete_delay_ms)

    # --- moving to another directory, see storage.moving ------------------------------------

    def take_over(self, log: Log, source: LogDirectory) -> None:
        """Take over a log that has moved here."""
        key = log.topic, log.partition
        del source.logs[key]
        self.logs[key] = log
        log.on_files_deleted = self.schedule_removal
        if key in source.cleaner_offsets:
            self.cleaner_offsets[key] = source.cleaner_offsets[key]

    def vacate(self, name: str) -> Path:
        """Rename a partition's directory that is no longer in use, durably, to be removed.

        Returns its new path; may run in a thread.
        """
        target = self.path / deleted_name(Path(name))
        self._fs.rename(self.path / name, target)
        self.sync()
        return target

    def forget_offsets(self, key: TopicPartition) -> None:
        """Forget the offsets noted for a partition that is no longer here."""
        for offsets in (
            self.cleaner_offsets,
            self._recovery_points,
            self._start_offsets,
            self._adopted_epochs,
        ):
            offsets.pop(key, None)

    def space(self) -> tuple[int, int]:
        """Return the size of the volume and the space available on it, in bytes."""
        return self._fs.space(self.path)

    def schedule_removal(self, paths: Sequence[Path], at_ms: int) -> None:
        """Schedule the removal of files or directories at a time."""
        for path in paths:
            heapq.heappush(self._removals, (at_ms, str(path)))

    def take_due_removals(self, now_ms: int) -> list[Path]:
        """Remove the due paths from the schedule, and return them."""
        due = []
        while self._removals and self._removals[0][0] <= now_ms:
            due.append(Path(heapq.heappop(self._removals)[1]))
        return due

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove files and directories; may run in a thread, as large files take a while."""
        for path in paths:
            if self._fs.is_directory(path):
                self._fs.remove_tree(path)
            else:
                self._fs.remove(path)

    def take_checkpoints(self) -> Checkpoints:
        """Return the present contents of the checkpoint files; store() follows.

        For partitions that are not loaded, the offsets noted before stay.
        """
        logs = self.logs.items()
        self._recovery_points |= {key: log.recovery_point for key, log in logs}
        self._checkpoint_number += 1
        return Checkpoints(
            self._checkpoint_number,
            {
                checkpoints.RECOVERY_POINTS: dict(self._recovery_points),
                checkpoints.LOG_START_OFFSETS: self._noted_start_offsets(),
                checkpoints.HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs},
                checkpoints.CLEANER_OFFSETS: dict(self.cleaner_offsets),
            },
        )

    def store(self, taken: Checkpoints) -> None:
        """Write checkpoints, unless later ones have been written. Raises DiskFailure."""
        with self._storing:
            for name, offsets in taken.offsets.items():
                if taken.number > self._stored.get(name, 0):
                    checkpoints.write_offsets(self._fs, self._file(name), offsets)
                    self._stored[name] = taken.number

    def write_checkpoints(self) -> None:
        """Write the recovery points, log start offsets, high watermarks and cleaner offsets."""
        self.store(self.take_checkpoints())

    def take_start_offsets(self) -> Checkpoints:
        """Return the present contents of the log start offset checkpoint; store() follows."""
        self._checkpoint_number += 1
        taken = {checkpoints.LOG_START_OFFSETS: self._noted_start_offsets()}
        return Checkpoints(self._checkpoint_number, taken)

    def _noted_start_offsets(self) -> dict[TopicPartition, int]:
        # Batches that are not durable yet may be lost, and then a log must not start past its
        # end. Segments before the start may come back after a crash, so the start is noted even
        # where the first segment begins there (Kafka notes only a start past that).
        self._start_offsets |= {
            key: min(log.log_start_offset, log.recovery_point) for key, log in self.logs.items()
        }
        return {key: offset for key, offset in self._start_offsets.items() if offset > 0}

    def take_cleaner_offsets(self) -> Checkpoints:
        """Return the present contents of the cleaner's checkpoint; store() follows."""
        self._checkpoint_number += 1
        taken = {checkpoints.CLEANER_OFFSETS: dict(self.cleaner_offsets)}
        return Checkpoints(self._checkpoint_number, taken)

    def close(self) -> None:
        """Make all logs durable; write the checkpoints and the mark of a clean stop.

        When the disk fails for a log, the others are closed all the same, and the mark is not
        written; the last DiskFailure is raised.
        """
        failure: DiskFailure | None = None
        for log in self.logs.values():
            try:
                log.close()
            except DiskFailure as error:
                logger.error("failed to close log=%s error=%s", log.name, error)
                failure = error
        # The mark that follows must not vouch for logs that were not recovered.
        self._recovery_points = {
            key: offset
            for key, offset in self._recovery_points.items()
            if key in self.logs or (self.was_clean and key not in self._suspect)
        }
        self.write_checkpoints()
        if self._adopted_epochs.keys() <= self.logs.keys():  # the logs have them now
            self._fs.remove(self.path / checkpoints.ADOPTED_EPOCHS)
        if failure is not None:
            raise failure
        self._mark_clean()
        self._lock = None  # releases it: the directory may be opened again

    def _mark_clean(self) -> None:
        marker = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        self._fs.write_atomically(self._file(CLEAN_MARKER), marker.encode())

    def _file(self, name: str) -> Path:
        """Return the path of a checkpoint, or of the mark of a clean stop."""
        return self.path / name

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self._fs, self.path / name)
        except CorruptFile as error:
            # A checkpoint only saves work: without it logs are re-read and re-cleaned.
            logger.warning("left out a checkpoint: %s", error)
            return {}


def make_durable_directory(fs: FileSystem, path: Path) -> None:
    """Create a directory and its parents so that a crash does not undo it."""
    missing = []
    while not fs.exists(path):
        missing.append(path)
        path = path.parent
    for made in reversed(missing):
        # Only the broker's own user may read the clients' data.
        fs.make_directory(made, is_private=made == missing[0])
        fs.sync_directory(made.parent)
