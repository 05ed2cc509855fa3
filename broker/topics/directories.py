"""The log directories of a broker: opened at its start, closed at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from odradek.broker.topics.partitions import Partitions
from odradek.storage.directory import METADATA_DIRECTORY, LogDirectory
from odradek.storage.errors import DiskFailure, StorageError, UnknownDirectory
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.moving import settle

logger = logging.getLogger(__name__)


D = TypeVar("D", bound=LogDirectory)


def open_directories(
    fs: FileSystem, paths: Sequence[Path], open_one: Callable[[Path], D]
) -> tuple[list[D], dict[Path, StorageError]]:
    """Open log directories; return those that are open, and the failures of the others' disks.

    Raises StorageError when none is left.
    """
    opened: list[D] = []
    refused: dict[Path, StorageError] = {}
    for path in paths:
        try:
            opened.append(open_one(path))
        except DiskFailure as error:
            refused[path] = error
    if not opened:
        raise next(iter(refused.values()))
    for path, refusal in refused.items():
        logger.error("log directory is offline path=%s: %s", path, refusal)
    settle(fs, opened)
    return opened, refused


async def close_directories(directories: Sequence[LogDirectory]) -> None:
    """Close all log directories, even after an error; raises the last StorageError.

    That takes seconds with thousands of logs. In a thread, so that the loop extends the session
    meanwhile: else other brokers would open logs that are not closed yet.
    """
    failure: StorageError | None = None
    for directory in directories:
        try:
            await asyncio.to_thread(directory.close)
        except StorageError as error:
            failure = error
    if failure is not None:
        raise failure


def refuse_kafkas(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Raise UnknownDirectory for log directories that hold Kafka's metadata."""
    for path in paths:
        refuse_kafkas_in(fs, path, paths)


def refuse_kafkas_in(fs: FileSystem, path: Path, paths: Sequence[Path]) -> None:
    """Raise UnknownDirectory if one of several log directories holds Kafka's metadata."""
    if fs.exists(path / METADATA_DIRECTORY):
        named = " ".join(map(str, paths))
        raise UnknownDirectory(
            f"{path} has the data of Apache Kafka: stop Kafka, and run `odradek adopt "
            f"{named}` to serve its topics, or choose another log.dirs"
        )


class LogTable:
    """The view of all logs that the cleaner uses."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""
        for directory in self._partitions.directories:
            yield from directory.logs.values()

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the log directory that holds a log."""
        return self._partitions.home_of(log)
