"""How appends of the broker itself become durable: records of coordinators, and markers."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.durability.group_commit import GroupCommit
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.log import Log


@dataclass(frozen=True, slots=True)
class Durability:
    """The flushes of a broker, and its settings of them."""

    group_commit: GroupCommit
    # Whether an append is answered once it is on the disk (log.flush.acks.all).
    waits_for_disk: Callable[[], bool]
    # Called with a log that refused an append, and with its error.
    on_refused: Callable[[Log, StorageError], None] = lambda log, error: None

    def must_wait(self, log: Log) -> bool:
        """Return whether an append is answered only once it is durable."""
        return log.is_shared or self.waits_for_disk()
