"""The reason why work that is repeated cannot be done now."""

from __future__ import annotations

import logging

from odradek.broker.errors import MetadataError
from odradek.broker.wal.entries import DamagedEntry
from odradek.storage.errors import NotLeader, StorageError
from odradek.storage.objects.store import ObjectStoreError

# The errors of a catalog, a store, a disk and the WAL; any other one is a bug.
_EXPECTED = (MetadataError, ObjectStoreError, StorageError, DamagedEntry)


class Obstacle:
    """Keeps the reason, and logs each one once: a log that moves meanwhile is no error."""

    def __init__(self, logger: logging.Logger, work: str) -> None:
        self._logger, self._work = logger, work
        # "" while the work can be done.
        self.reason = ""

    def note(self, error: Exception) -> None:
        """Note the error of a try that will be repeated; a bug is logged with its traceback."""
        reason = str(error) or repr(error)
        if reason != self.reason:
            self._logger.log(
                logging.INFO if isinstance(error, NotLeader) else logging.ERROR,
                "could not %s, tries again: %s", self._work, reason,
                exc_info=None if isinstance(error, _EXPECTED) else error,
            )  # fmt: skip
        self.reason = reason

    def end(self) -> None:
        """Note that the work was done, or need not be."""
        self.reason = ""
