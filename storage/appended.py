"""The place of a batch that a log has appended."""

from __future__ import annotations

from odradek.dataclass import dataclass
from odradek.storage.producers import RememberedBatch


@dataclass(frozen=True, slots=True)
class Appended:
    """The place of an appended batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool = False

    @classmethod
    def again(cls, batch: RememberedBatch) -> Appended:
        """Return the place of a batch that an idempotent producer repeats.

        As in Kafka, its largest timestamp is returned as the append time, even if the producer
        set it.
        """
        return cls(batch.first_offset, batch.last_offset, batch.timestamp, is_duplicate=True)
