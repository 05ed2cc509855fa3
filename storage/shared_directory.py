"""A log directory that several processes of one host use, each for logs of its own.

    data/
      .lock                                held by the process that started the others
      recovery-point-offset-checkpoint.2   the checkpoints of the logs of process 2
      .kafka_cleanshutdown.2               process 2 has closed all its logs

A log changes hands with a note (LeftLog), which the processes exchange by other means. Nobody
reads the checkpoints of a process that runs: once it has ended, the process that holds the lock
takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from odradek.storage import checkpoints
from odradek.storage.checkpoints import LeftLog, TopicPartition
from odradek.storage.directory import CLEAN_MARKER, LogDirectory
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.partition_directories import list_futures, list_partitions

logger = logging.getLogger(__name__)

_FILES = (
    checkpoints.CLEANER_OFFSETS,
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    CLEAN_MARKER,
)


class HostLogDirectory(LogDirectory):
    """A log directory that is locked for other processes, before, while and after they use it."""

    def left(self) -> dict[TopicPartition, LeftLog]:
        """Return the states in which the last single process left its logs."""
        return checkpoints.combine(
            self._recovery_points,
            self._start_offsets,
            self.cleaner_offsets,
            is_clean=self.was_clean,
        )

    def discard_checkpoints(self) -> None:
        """Remove the checkpoints, durably: the processes have their own ones from now on."""
        for offsets in (self._recovery_points, self._start_offsets, self.cleaner_offsets):
            offsets.clear()
        for name in _FILES:
            self._fs.remove(self.path / name)
        for process in processes_of(self._fs, self.path):
            discard(self._fs, self.path, process)
        self.sync()

    def settle(self, *, is_clean: bool) -> None:
        """Write checkpoints of all logs from those of the processes, which have ended.

        With `is_clean` each of them has closed its logs.
        """
        processes = processes_of(self._fs, self.path)
        for process in processes:
            for key, left in take_left(self._fs, self.path, process).items():
                self._note_left(key, left)
        self.write_checkpoints()
        if is_clean:
            # All that a closed log has is durable, and may be read.
            path = self.path / checkpoints.HIGH_WATERMARKS
            checkpoints.write_offsets(self._fs, path, self._recovery_points)
            self._fs.remove(self.path / checkpoints.ADOPTED_EPOCHS)
            self._mark_clean()
        for process in processes:
            discard(self._fs, self.path, process)


class SharedLogDirectory(LogDirectory):
    """The logs of one process in a directory that another process has locked for it."""

    def __init__(self, fs: FileSystem, path: Path, process: int) -> None:
        """`process` is a number that no other process has; the directory exists."""
        self._process = process
        super().__init__(fs, path, cluster_id="", node_id=process)

    def discover(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, bytes | None]:
        """Return those of some partitions that have a directory here, with their topics' ids."""
        there = [
            (topic, number)
            for topic, number in keys
            if self._fs.is_directory(self.path / f"{topic}-{number}")
        ]
        return list_partitions(self._fs, self.path, there)

    def _begin(self, cluster_id: str, node_id: int) -> None:
        # Those of an earlier process with this number were taken before.
        discard(self._fs, self.path, self._process)
        self.futures_at_start = list_futures(self._fs, self.path)
        self.partitions_at_start = {}
        self.was_clean = False
        self.cleaner_offsets, self._recovery_points, self._start_offsets = {}, {}, {}
        self._adopted_epochs = self._read(checkpoints.ADOPTED_EPOCHS)

    def _file(self, name: str) -> Path:
        return _file_of(self.path, name, self._process)


def take_left(fs: FileSystem, path: Path, process: int) -> dict[TopicPartition, LeftLog]:
    """Read the state in which a process that has ended left its logs; discard() follows."""
    offsets = [
        _read(fs, _file_of(path, name, process))
        for name in (
            checkpoints.RECOVERY_POINTS,
            checkpoints.LOG_START_OFFSETS,
            checkpoints.CLEANER_OFFSETS,
        )
    ]
    return checkpoints.combine(*offsets, is_clean=fs.exists(_file_of(path, CLEAN_MARKER, process)))


def discard(fs: FileSystem, path: Path, process: int) -> None:
    """Remove the checkpoints of a process, durably."""
    left = [one for name in _FILES if fs.exists(one := _file_of(path, name, process))]
    for one in left:
        fs.remove(one)
    if left:
        fs.sync_directory(path)


def processes_of(fs: FileSystem, path: Path) -> list[int]:
    """Return the processes that have left checkpoints or the mark of a clean stop."""
    found = set()
    for name in fs.list(path):
        base, _, process = name.rpartition(".")
        if base in _FILES and process.isdecimal():
            found.add(int(process))
    return sorted(found)


def _file_of(path: Path, name: str, process: int) -> Path:
    return path / f"{name}.{process}"


def _read(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(fs, path)
    except CorruptFile as error:
        # A checkpoint only saves work: without it logs are re-read and re-cleaned.
        logger.warning("left out a checkpoint: %s", error)
        return {}
