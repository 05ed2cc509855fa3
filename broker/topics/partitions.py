"""The logs of partitions, spread over the log directories.

A partition's directory holds the id of its topic (partition.metadata). A directory whose topic the
metadata does not know is a stray: it is left alone, and no new topic may take its name, so that
records of a forgotten topic never appear in another. An id that differs from the topic's in only a
few characters is damaged: the directory belongs to the topic, and loading it corrects the id.
Kafka's own metadata log is no stray: it stays in an adopted data directory.

A log that its disk cannot read, or whose log directory is missing, does not hinder the others:
the partition is offline until broker.topics.disks brings it back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from odradek.broker.errors import Refusal
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics.loading import Progress, open_some
from odradek.broker.topics.names import CLUSTER_METADATA
from odradek.broker.topics.states import OfflinePartition, Partition, Wanted, as_offline
from odradek.config.topic import TopicConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.wire import encode_uuid
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DirectoryOffline, StorageError, UnknownDirectory
from odradek.storage.log import Log
from odradek.storage.shared_directory import SharedLogDirectory

logger = logging.getLogger(__name__)

_PROGRESS_S = 5.0

TakeCopies = Callable[
    [Sequence[LogDirectory], Mapping[TopicPartition, bytes]], Mapping[Path, TopicPartition]
]


class SharedLogs(Protocol):
    """The shared partitions that this broker leads."""

    @property
    def home(self) -> LogDirectory:
        """The directory of their logs."""

    async def open(self, wanted: Sequence[Wanted]) -> Sequence[Partition]:
        """Open logs with their committed batches; those that are open stay."""

    async def store_starts(self, offsets: Mapping[Log, int]) -> list[Log]:
        """Let the catalog have log start offsets; return the logs that are not led any more.

        Raises MetadataError.
        """


def online(opened: Sequence[Partition]) -> tuple[Partition, ...]:
    """Return new partitions; raises the StorageError of one that could not be created."""
    for one in opened:
        if isinstance(one, OfflinePartition):
            raise one.cause
    return tuple(opened)


class Partitions:
    """Creates, loads and deletes the logs of topics. The event loop owns it."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        now_ms: Callable[[], int],
        threads: Callable[[], int] = lambda: 1,
    ) -> None:
        """`threads` returns the number of threads that load logs, for each directory."""
        self._directories = list(directories)
        # The logs of shared partitions; None without an object store.
        self.shared: SharedLogs | None = None
        self._now_ms, self._threads = now_ms, threads
        # The log directories that cannot be used, and their errors.
        self.offline_directories: dict[Path, StorageError] = {}
        # Directories without a log yet: all of them at the start, the strays later.
        self._idle: dict[Path, bytes | None] = {}
        for home in directories:
            self._look_into(home)
        # Partitions whose directories had no id, and went with a deleted topic of the same name.
        # They had no durable record of any topic, so that a new one hides no loss.
        self._emptied: set[str] = set()
        # Called with each log, loaded or new, before a request can find it.
        self.on_log: list[Callable[[Log], None]] = []
        # Lets logs that were copied from other hosts be those of partitions, given with their
        # topics' ids; returns the directories. May run in a thread; None without other hosts.
        self.take_copies: TakeCopies | None = None

    @property
    def local_directories(self) -> Sequence[LogDirectory]:
        """The log directories in use."""
        return self._directories

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories in use, with that of the shared partitions."""
        return self._directories if self.shared is None else [*self._directories, self.shared.home]

    @property
    def strays(self) -> list[Path]:
        """The directories that belong to no topic, once all topics are loaded."""
        return sorted(self._idle)

    def strays_of(self, record: TopicRecord, number: int) -> list[LogDirectory]:
        """Return the log directories that have files of a partition that is not open."""
        name = f"{record.name}-{number}"
        return [
            home
            for home in self._directories
            if self._idle.get(home.path / name) == record.topic_id
        ]

    def release(self, log: Log) -> None:
        """Forget a log that was closed for another broker; it may be opened here again."""
        home = self.home_of(log)
        home.logs.pop((log.topic, log.partition), None)
        home.forget_offsets((log.topic, log.partition))
        if not log.is_shared and not isinstance(home, SharedLogDirectory):
            # There, each open() looks at the disk.
            self._idle[log.directory] = log.topic_id

    async def vacate(self, home: LogDirectory, name: str) -> Path:
        """Rename the directory of a partition that another host has; return the new path.

        It is to be removed. Raises StorageError.
        """
        path = await asyncio.to_thread(home.vacate, name)
        self._idle.pop(home.path / name, None)
        logger.info("removes a log that has moved to another host path=%s", home.path / name)
        return path

    def add(self, home: LogDirectory) -> None:
        """Begin to use a log directory."""
        self.offline_directories.pop(home.path, None)
        self._directories.append(home)
        self._look_into(home)

    def _look_into(self, home: LogDirectory) -> None:
        for (name, partition), topic_id in home.partitions_at_start.items():
            if name != CLUSTER_METADATA:
                self._idle[home.path / f"{name}-{partition}"] = topic_id

    def is_open(self, wanted: Wanted) -> bool:
        """Return whether the log of a partition is open, in the storage where it is.

        In the other one a log may have stayed that others led meanwhile.
        """
        key, homes = (wanted.record.name, wanted.number), self.local_directories
        if wanted.is_shared:
            homes = [] if self.shared is None else [self.shared.home]
        return any(key in home.logs for home in homes)

    async def open(self, wanted: Sequence[Wanted]) -> list[Partition]:
        """Load partitions of topics, and create those that have no directory.

        A partition that the disk refuses is offline. Threads do all the waiting.
        """
        shared = [one for one in wanted if one.is_shared]
        if not shared:
            return await self._open_local(wanted)
        local = [one for one in wanted if not one.is_shared]
        opened = iter(await self._open_local(local) if local else [])
        found = iter(await self._open_shared(shared))
        return [next(found if one.is_shared else opened) for one in wanted]

    async def _open_shared(self, wanted: Sequence[Wanted]) -> Sequence[Partition]:
        if self.shared is None:
            missing = StorageError("the partition is in a bucket: set odradek.object.store.url")
            return [as_offline(one, missing) for one in wanted]
        opened = await self.shared.open(wanted)
        for one in opened:
            if isinstance(one, Log) and self.shared.home.logs.get(_key(one)) is not one:
                self._add(self.shared.home, one)
        return opened

    async def _open_local(self, wanted: Sequence[Wanted]) -> list[Partition]:
        await self._take_copies(wanted)
        await self._look_for(wanted)
        opened: list[Partition | None] = [None] * len(wanted)
        to_open: dict[LogDirectory, list[tuple[int, Wanted]]] = {}
        added: dict[LogDirectory, int] = dict.fromkeys(self._directories, 0)
        for at, one in enumerate(wanted):
            try:
                home = self._home_for(one, added)
            except StorageError as error:
                opened[at] = as_offline(one, error)
                continue
            found = home.logs.get((one.record.name, one.number))
            if found is None:
                to_open.setdefault(home, []).append((at, one))
            opened[at] = found
        for home, (at, one), result in await self._open_all(to_open):
            opened[at] = result
            if isinstance(result, Log):
                self._idle.pop(home.path / one.name, None)
                self._add(home, result)
        assert all(one is not None for one in opened)
        return [one for one in opened if one is not None]

    def _add(self, home: LogDirectory, log: Log) -> None:
        home.add(log)
        for listener in self.on_log:
            listener(log)

    async def _take_copies(self, wanted: Sequence[Wanted]) -> None:
        topic_ids = {
            (one.record.name, one.number): one.record.topic_id
            for one in wanted
            if one.record.is_made(one.number) and not self.is_open(one)
        }
        if self.take_copies is None or not topic_ids:
            return
        loop, homes = asyncio.get_running_loop(), list(self._directories)
        try:
            taken = await loop.run_in_executor(None, self.take_copies, homes, topic_ids)
        except StorageError as error:  # their partitions will be offline
            logger.error("could not use copies of logs: %s", error)
            return
        for path, key in taken.items():
            for home in homes:
                self._idle.pop(home.path / path.name, None)
            self._idle[path] = topic_ids[key]

    async def _look_for(self, wanted: Sequence[Wanted]) -> None:
        """Look again for directories that other brokers of this host may have made."""
        loop = asyncio.get_running_loop()
        for home in self._directories:
            if isinstance(home, SharedLogDirectory):
                names = [(one.record.name, one.number) for one in wanted]
                keys = [one for one in names if one not in home.logs]
                try:
                    found = await loop.run_in_executor(None, home.discover, keys)
                except StorageError as error:  # those that had a directory will be offline
                    logger.error("could not look for partitions path=%s: %s", home.path, error)
                    continue
                for (name, number), topic_id in found.items():
                    self._idle[home.path / f"{name}-{number}"] = topic_id

    async def _open_all(
        self, to_open: dict[LogDirectory, list[tuple[int, Wanted]]]
    ) -> list[tuple[LogDirectory, tuple[int, Wanted], Partition]]:
        """Open logs in the configured number of threads for each directory."""
        if not to_open:
            return []
        loop, threads = asyncio.get_running_loop(), max(self._threads(), 1)
        progress = Progress(sum(map(len, to_open.values())))
        now_ms = self._now_ms()
        with ThreadPoolExecutor(threads * len(to_open), thread_name_prefix="load") as pool:
            jobs = []
            for home, ones in to_open.items():
                # The threads share the iterator: each takes the next log when it has opened one.
                shared = iter(ones)
                jobs += [
                    loop.run_in_executor(pool, open_some, home, shared, now_ms, progress)
                    for _ in range(min(threads, len(ones)))
                ]
            return list(itertools.chain.from_iterable(await asyncio.gather(*jobs)))

    def refuse_strays(self, record: TopicRecord) -> None:
        """Raise Refusal for a new topic that would find old records in its partitions."""
        if not self._idle:
            return
        for home in self._directories:
            for number in range(record.partition_count):
                path = home.path / f"{record.name}-{number}"
                if path in self._idle:
                    message = f"{path} belongs to no topic: move it away, then try again"
                    raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, message)

    async def delete(self, partitions: Sequence[Partition]) -> None:
        """Delete logs with all their records. Raises StorageError."""
        # Offline partitions are left to the next start.
        refused = [one.cause for one in partitions if isinstance(one, OfflinePartition)]
        by_home: dict[LogDirectory, list[Log]] = {}
        for one in partitions:
            if isinstance(one, Log):
                one.is_deleted = True
                by_home.setdefault(self.home_of(one), []).append(one)
        loop = asyncio.get_running_loop()
        for home, doomed in by_home.items():
            moved, failure = await loop.run_in_executor(None, home.move_out, doomed)
            home.forget(moved, self._now_ms())
            if failure is None:
                await loop.run_in_executor(None, home.store, home.take_checkpoints())
            else:
                refused.append(failure)
        if refused:
            raise refused[0]

    async def delete_remains(self, record: TopicRecord, config: TopicConfig) -> None:
        """Delete all that is left of a topic: logs in use, and directories not loaded."""
        left = []
        for number in range(record.partition_count):
            one, home = Wanted(record, number, config), self._home_of(record, number)
            if home is not None:
                left.append(one)
                if self._idle.get(home.path / one.name, record.topic_id) is None:
                    self._emptied.add(one.name)
        await self.delete(await self.open(left))

    def log_of(self, record: TopicRecord, number: int) -> Log | None:
        """Return the log of a partition that is open here, None if there is none."""
        found = (home.logs.get((record.name, number)) for home in self.directories)
        return next((one for one in found if one and one.topic_id == record.topic_id), None)

    def home_of(self, log: Log) -> LogDirectory:
        """Return the directory that holds a log."""
        return next(one for one in self.directories if one.path == log.directory.parent)

    def _home_for(self, wanted: Wanted, added: dict[LogDirectory, int]) -> LogDirectory:
        """Return the log directory that holds a partition, or where it will be created.

        `added` counts the new partitions in each. Raises StorageError if it must not be opened.
        """
        if wanted.failed is not None:
            return self.home_of(wanted.failed)
        home = self._home_of(wanted.record, wanted.number)
        if home is not None:
            return home
        for other in self._directories:
            self._check_owner(other, wanted)
        if self.offline_directories:
            # The partition may be there: an empty one elsewhere would hide its records.
            path, cause = next(iter(self.offline_directories.items()))
            raise DirectoryOffline(f"{wanted.name} may be in {path}, which is offline: {cause}")
        if wanted.is_made and wanted.name not in self._emptied:
            raise DirectoryOffline(
                f"the directory of {wanted.name} is gone: bring it back and start again, or "
                "start with odradek.create.missing.partitions=true, which creates it again, empty"
            )
        home = min(self._directories, key=lambda one: len(one.logs) + added[one])
        added[home] += 1
        return home

    def _home_of(self, record: TopicRecord, number: int) -> LogDirectory | None:
        """Return the log directory that holds a partition of a topic, or None."""
        for home in self._directories:
            log = home.logs.get((record.name, number))
            if log is not None and log.topic_id == record.topic_id:
                return home
        paths = {home.path / f"{record.name}-{number}": home for home in self._directories}
        found = [path for path in paths if path in self._idle and self._is_of(path, record)]
        # A directory with the topic's own id takes precedence over one without an id.
        best = min(found, key=lambda path: self._idle[path] != record.topic_id, default=None)
        return None if best is None else paths[best]

    def _is_of(self, path: Path, record: TopicRecord) -> bool:
        noted = self._idle[path]
        # A directory without an id was not completed, or was created before Kafka 2.8.
        return noted is None or _is_same_but_for_damage(noted, record.topic_id)

    def _check_owner(self, home: LogDirectory, wanted: Wanted) -> None:
        path, record = home.path / wanted.name, wanted.record
        log = home.logs.get((record.name, wanted.number))
        if log is not None:  # of a topic whose deletion the disk has refused
            topic_id: bytes | None = log.topic_id
        elif path not in self._idle or self._is_of(path, record):
            return
        else:
            topic_id = self._idle[path]
        assert topic_id is not None
        raise UnknownDirectory(
            f"{path} belongs to a topic of id {encode_uuid(topic_id)}, and topic "
            f"{record.name} has id {encode_uuid(record.topic_id)}: move the directory away"
        )


def _key(log: Log) -> TopicPartition:
    return log.topic, log.partition


def _is_same_but_for_damage(one: bytes, other: bytes) -> bool:
    """Return whether most characters of two ids agree; in random ids 1 in 64 does."""
    pairs = list(zip(encode_uuid(one), encode_uuid(other), strict=True))
    return sum(a == b for a, b in pairs) > len(pairs) // 2
