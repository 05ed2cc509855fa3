"""Where partitions live: their logs, spread over the log directories.

A partition's directory notes the id of its topic (partition.metadata). One whose topic the
metadata does not know is a stray: it is left alone, and nothing new may take its name, so that
records of a forgotten topic never turn up in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.errors import Refusal
from broker.metadata import TopicRecord
from config.topic import TopicConfig
from protocol.errors import ErrorCode
from protocol.wire import encode_uuid
from storage.directory import LogDirectory
from storage.errors import UnknownDirectory
from storage.log import Log


class Partitions:
    """Makes, loads and deletes the logs of topics. The event loop owns it."""

    def __init__(self, directories: Sequence[LogDirectory], now_ms: Callable[[], int]) -> None:
        self._directories, self._now_ms = directories, now_ms
        # Directories without a log yet: all of them at the start, the strays after that.
        self._idle = {
            home.path / f"{name}-{partition}": topic_id
            for home in directories
            for (name, partition), topic_id in home.partitions().items()
        }
        # Called with each log, loaded or new, before anybody can find it.
        self.on_log: list[Callable[[Log], None]] = []

    @property
    def strays(self) -> list[Path]:
        """The directories that belong to no topic, once all topics are loaded."""
        return sorted(self._idle)

    async def open(
        self, record: TopicRecord, config: TopicConfig, numbers: Sequence[int]
    ) -> list[Log]:
        """Load partitions of a topic, and create those that have no directory.

        Each waits for the disk, and requests are let through in between. Raises StorageError.
        """
        logs = []
        for number in numbers:
            logs.append(self._open(record, number, config))
            await asyncio.sleep(0)
        return logs

    def missing(self, record: TopicRecord) -> list[int]:
        """Return which partitions of a topic that is not loaded have no directory."""
        return [
            number
            for number in range(record.partition_count)
            if self._home_of(record, number) is None
        ]

    def refuse_strays(self, record: TopicRecord) -> None:
        """Raise Refusal for a new topic that would find old records where it should be empty."""
        if not self._idle:
            return
        for home in self._directories:
            for number in range(record.partition_count):
                path = home.path / f"{record.name}-{number}"
                if path in self._idle:
                    message = f"{path} belongs to no topic: move it away, then create the topic"
                    raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, message)

    async def delete(self, logs: Sequence[Log]) -> None:
        """Delete logs with all that is in them. Raises StorageError."""
        for log in logs:
            home = next(one for one in self._directories if one.path == log.directory.parent)
            home.delete_log(log, self._now_ms())
            await asyncio.sleep(0)

    async def delete_remains(self, record: TopicRecord, config: TopicConfig) -> None:
        """Delete whatever there is of a topic: logs in use, and directories not loaded."""
        missing = set(self.missing(record))
        left = [number for number in range(record.partition_count) if number not in missing]
        await self.delete(await self.open(record, config, left))

    def _open(self, record: TopicRecord, number: int, config: TopicConfig) -> Log:
        home = self._home_of(record, number)
        if home is not None and (record.name, number) in home.logs:
            return home.logs[record.name, number]
        if home is None:
            home = min(self._directories, key=lambda one: len(one.logs))
        path = home.path / f"{record.name}-{number}"
        if path in self._idle:
            self._check_owner(path, record)
        log = home.create_log(record.name, number, record.topic_id, config, now_ms=self._now_ms())
        self._idle.pop(path, None)
        for listener in self.on_log:
            listener(log)
        return log

    def _home_of(self, record: TopicRecord, number: int) -> LogDirectory | None:
        """Return the directory that holds a partition of a topic, None when none does."""
        for home in self._directories:
            log = home.logs.get((record.name, number))
            if log is not None and log.topic_id == record.topic_id:
                return home
        for home in self._directories:
            path = home.path / f"{record.name}-{number}"
            # Without an id is one whose creation was cut short, or one from before Kafka 2.8.
            if path in self._idle and self._idle[path] in (record.topic_id, None):
                return home
        return None

    def _check_owner(self, path: Path, record: TopicRecord) -> None:
        topic_id = self._idle[path]
        if topic_id not in (record.topic_id, None):
            assert topic_id is not None
            raise UnknownDirectory(
                f"{path} belongs to a topic of id {encode_uuid(topic_id)}, and topic "
                f"{record.name} has id {encode_uuid(record.topic_id)}: move the directory away"
            )
