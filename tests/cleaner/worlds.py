"""A log on a real file system whose batches a test chooses to the last bit, and its clock.

Batches go into the log below its checks, so that histories can hold what no client of this
broker can write: gaps, records without keys in compacted topics, transactions and their markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.job import CleanerSettings
from odradek.cleaner.runtime.progress import Horizons
from odradek.config.topic import TopicConfig
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import BatchHeader, Record, encode_batch, read_header
from odradek.protocol.compression import Codec
from odradek.protocol.control import encode_end_txn_marker
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.once import SETTINGS, clean_once

FS = RealFileSystem()
COMPACT = frozenset({"compact"})
TOPIC = "prices"

# Everything that is dirty is cleaned, and merged into as few segments as possible.
EAGER = TopicConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0, delete_retention_ms=100)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in a log, taken apart."""

    header: BatchHeader
    records: tuple[Record, ...]

    @property
    def facts(self) -> BatchHeader:
        """The header without what depends on the codec's library: its size and CRC."""
        return replace(self.header, crc=0, length=0)


class World:
    """A partition's log, its directory, and what time it is."""

    def __init__(self, path: Path, config: TopicConfig = EAGER, topic: str = TOPIC) -> None:
        self.now_ms = 1_000_000
        self.directory = LogDirectory(FS, path, cluster_id="c", node_id=1)
        self.log: Log = self.directory.create_log(
            topic, 0, bytes(16), config, now_ms=self.now_ms
        )

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int, int] | None = None,  # id, epoch, base sequence
        transactional: bool = False,
        log_append_time: bool = False,
        gap: int = 0,
        timestamps: Sequence[int] | None = None,
    ) -> StoredBatch:
        """Append a batch of (key, value); `gap` offsets are left out before it."""
        first = self.log.log_end_offset + gap
        stamps = timestamps or [self.now_ms + at for at in range(len(records))]
        made = [
            Record(first + at, stamps[at], key, value, (("h", key),))
            for at, (key, value) in enumerate(records)
        ]
        producer_id, epoch, sequence = producer or (-1, -1, -1)
        return self.append_batch(
            encode_batch(
                made,
                base_offset=first,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
                log_append_time=log_append_time,
            )
        )

    def append_marker(self, producer_id: int, epoch: int, *, commit: bool) -> StoredBatch:
        """Append the marker that ends a producer's transaction."""
        return self.append_batch(
            encode_end_txn_marker(
                commit=commit,
                timestamp=self.now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=0,
                base_offset=self.log.log_end_offset,
            )
        )

    def append_batch(self, batch: bytes) -> StoredBatch:
        """Append a batch as it is, offsets included."""
        header = read_header(batch)
        log = self.log
        log.active.append(
            (batch,),
            len(batch),
            header.last_offset,
            header.max_timestamp,
            log.config.index_interval_bytes,
        )
        log.log_end_offset = header.next_offset
        if header.producer_id >= 0:
            log.producers.replay(header, batch)
        return StoredBatch(header, tuple(decode_records(batch)))

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Add to the transaction index of the active segment, where the marker is."""
        self.log.active.transactions.append(transaction)

    def roll(self) -> None:
        """Seal the active segment."""
        self.log.roll(self.now_ms)

    def reopen(self) -> None:
        """Close the directory, and open it again."""
        self.directory.close()
        self.directory = LogDirectory(FS, self.directory.path, cluster_id="c", node_id=1)
        log = self.log
        self.log = self.directory.create_log(
            log.topic, log.partition, log.topic_id, log.config, now_ms=self.now_ms
        )

    def clean(
        self, settings: CleanerSettings = SETTINGS, horizons: Horizons | None = None
    ) -> CleanResult | None:
        """Clean the log now."""
        return clean_once(
            self.log, self.directory, self.now_ms, fs=FS, settings=settings, horizons=horizons
        )

    @property
    def checkpoint(self) -> int | None:
        """Up to where the log is clean."""
        return self.directory.cleaner_offsets.get((self.log.topic, self.log.partition))

    def segments(self) -> list[list[StoredBatch]]:
        """Read all batches back, segment by segment."""
        return [
            [StoredBatch(header, tuple(decode_records(data))) for _, header, data in s.batches()]
            for s in self.log.segments
        ]

    def batches(self) -> list[StoredBatch]:
        """Read all batches back."""
        return [batch for segment in self.segments() for batch in segment]

    def records(self) -> list[Record]:
        """Read all records back, those of control batches left out."""
        return [r for b in self.batches() if not b.header.is_control for r in b.records]

    def values(self) -> list[str]:
        """Read all records back as key:value."""
        return [
            f"{(r.key or b'').decode()}:{'-' if r.value is None else r.value.decode()}"
            for r in self.records()
        ]


def pairs(text: str) -> list[tuple[bytes | None, bytes | None]]:
    """Parse "p3:10 p5:-" into keys and values; - is a tombstone, an empty key none."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for word in text.split():
        key, value = word.split(":")
        found.append((key.encode() or None, None if value == "-" else value.encode()))
    return found
