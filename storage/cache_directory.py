"""The logs of shared partitions on this machine, in a directory of their own.

    data/odradek-cache.2/              of the broker with node id 2
      orders-0/                        a log, as everywhere
    data/odradek-replicas.2/           logs that other brokers lead, while consumers read them

The bucket and the catalog have all that was acknowledged, so nothing here outlives the process:
the directories begin empty, no log is flushed, and no checkpoint is written. Each broker has its
own, also where several share log directories: one that was paused may still write when another
leads its partitions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.storage.checkpoints import Checkpoints
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from odradek.storage.recovery import Checkpointed, load_log
from odradek.storage.rolling import begin_segment


def cache_path(log_directory: Path, node_id: int) -> Path:
    """Return the path of a broker's cache; it is no name of a partition."""
    return log_directory / f"odradek-cache.{node_id}"


class CacheDirectory(LogDirectory):
    """The event loop owns it; begin_directory() and load_log() may run in a thread."""

    def begin_directory(self, topic: str, partition: int) -> Path:
        """Make the directory of a log, without anything in it; it may run in a thread.

        Raises DiskFailure.
        """
        directory = self.path / f"{topic}-{partition}"
        if self._fs.exists(directory):
            self.remove([self.vacate(directory.name)])
        self._fs.make_directory(directory)
        return directory

    def load_log(
        self, identity: LogIdentity, config: TopicConfig, end_offset: int, now_ms: int
    ) -> Log:
        """Return a log with the segments in its directory, which continues at an offset.

        It may run in a thread. Raises DiskFailure.
        """
        directory = self.path / f"{identity.topic}-{identity.partition}"
        begin_segment(self._fs, directory, end_offset, config)
        checkpointed = Checkpointed(end_offset, 0, was_clean=True, is_copy=True)
        log = load_log(
            self._fs,
            directory,
            identity,
            config,
            checkpointed,
            now_ms=now_ms,
            random_source=random.Random(now_ms),
        )
        log.on_files_deleted = self.schedule_removal
        return log

    def discard(self, logs: Sequence[Log]) -> None:
        """Remove the files of logs that have ended; may run in a thread. Raises DiskFailure."""
        self.remove([log.directory for log in logs])

    def store(self, taken: Checkpoints) -> None:
        """Do nothing: no start reads a checkpoint."""

    def close(self) -> None:
        """Remove everything."""
        self._lock = None
        self._fs.remove_tree(self.path)

    def _begin(self, cluster_id: str, node_id: int) -> None:
        if self._fs.exists(self.path):
            self._fs.remove_tree(self.path)
        super()._begin(cluster_id, node_id)
