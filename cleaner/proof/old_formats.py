"""Proves the conversion of messages of magic 0 and 1: the remaining ones, in batches of magic 2.

The cleaning chooses how many messages share a batch, so they are compared record by record, and
each batch's header by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.proof.comparison import Kept, check_record, each_record_of, failed
from odradek.cleaner.proof.stored import Stored
from odradek.protocol.batches import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Record,
)
from odradek.protocol.legacy import NO_LEADER_EPOCH


class Output(Protocol):
    """The batches of a cleaning's output (cleaner.proof.proof.Found)."""

    next: Stored | None

    def take(self) -> Stored:
        """Return the next batch; there must be one."""

    def missing(self, offset: int, cause: str) -> VerificationFailed:
        """Return the error for the output that should come next and is missing."""


class OldFormats:
    """Consecutive messages of old formats, and the batches that they were converted to."""

    def __init__(
        self,
        found: Output,
        keeps: Callable[[Record, int | None, Stored | None], bool],
        horizon_ms: int,
        decompressed_bytes_max: int,
    ) -> None:
        """`keeps` judges a record; `horizon_ms` is the delete horizon for tombstones."""
        self._found, self._keeps = found, keeps
        self._horizon_ms, self._bytes_max = horizon_ms, decompressed_bytes_max
        self._batch: Stored | None = None  # the batch whose records are being compared
        # Its records, one by one: a list of them takes far more memory than the batch.
        self._records: Iterator[Record] = iter(())
        self._next: Record | None = None

    def check(self, source: Stored, must_end: bool) -> None:
        """Compare the remaining records of the next message, or wrapper.

        With `must_end` a batch, perhaps an empty one, must end at the same offset.
        """
        for record in source.each_record(self._bytes_max):
            at = self._batch if self._next is not None else self._found.next
            if not self._keeps(record, None, at):
                continue
            if self._next is None:
                self._begin(source, record)
            assert self._batch is not None and self._next is not None
            check_record(self._batch, self._next, record)
            self._next = next(self._records, None)
        if must_end:
            self._check_end(source.header.last_offset)

    def finish(self) -> None:
        """Check that the last batch has no further records; no old message follows."""
        if self._next is not None and self._batch is not None:
            raise failed(self._batch, "no further record may be left of it", self._next.offset)
        self._batch = None

    def _begin(self, source: Stored, record: Record) -> None:
        if self._found.next is None:
            raise self._found.missing(record.offset, "a record must be left")
        self._batch = self._found.take()
        kept = Kept()
        for one in each_record_of(self._batch, self._bytes_max):
            kept.note(one)
        if not kept.count:
            raise failed(self._batch, "it is empty, but a record must be left", record.offset)
        self._records = each_record_of(self._batch, self._bytes_max)
        self._next = next(self._records)
        if self._batch.header.magic == MAGIC:
            self._check_header(self._batch, kept, source)
        elif kept.has_tombstones:
            raise failed(self._batch, "a tombstone needs a delete horizon")

    def _check_header(self, batch: Stored, kept: Kept, source: Stored) -> None:
        header, is_stamped = batch.header, kept.has_tombstones
        attributes = source.header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT)
        if is_stamped:
            attributes |= DELETE_HORIZON_BIT
        expected = {
            "attributes": attributes,
            "leader_epoch": NO_LEADER_EPOCH,
            "base_timestamp": self._horizon_ms if is_stamped else kept.first_timestamp,
            "max_timestamp": kept.max_timestamp,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "base_sequence": NO_SEQUENCE,
        }
        for name, wanted in expected.items():
            there = getattr(header, name)
            if there != wanted:
                raise failed(batch, f"{name} is {there}, expected {wanted}")
        if header.last_offset < kept.last_offset:
            raise failed(batch, f"its last offset is {header.last_offset}")

    def _check_end(self, last_offset: int) -> None:
        if self._batch is None or self._batch.header.last_offset != last_offset:
            cause = f"a batch, perhaps an empty one, must end at offset {last_offset}"
            if self._found.next is None or self._found.next.header.last_offset != last_offset:
                raise self._found.missing(last_offset, cause)
            self._batch = self._found.take()
            if self._batch.header.count:
                raise failed(self._batch, "only its header may be left")
