"""Mistakes about the segments of shared topics that a simulation of them has to find."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.catalog import segment_rows, wal_trimming
from odradek.broker.catalog.segment_rows import Leadership, SegmentRow
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import packing, uploads
from odradek.broker.shared.building import Builder
from odradek.broker.shared.exchanging import CleanedUpload
from odradek.cleaner.rules import policy
from odradek.config.values import INT64_MAX
from odradek.storage.producers import ProducerStates
from odradek.storage.readable_log import ReadableLog
from odradek.storage.segment import TXN_INDEX
from tests.simulation.cluster import movers, producers
from tests.simulation.shared import bucket
from tests.simulation.shared.run import SharedNemesis


def move_often(patch: pytest.MonkeyPatch) -> None:
    """Let partitions go and come back while something of theirs is stored."""
    patch.setattr(movers, "_PAUSE_S", 0.15)
    patch.setattr(bucket, "_LATENCIES_S", (0.05, 0.15))
    patch.setattr(SharedNemesis, "steps", lambda self: {self.spoil_bucket: 2, self.kill: 1})


def misplace_packed_segments(patch: pytest.MonkeyPatch) -> None:
    """All rows of a pack have the position of its first segment."""
    pack = packing.pack

    def misplaced(*args: Any) -> list[SegmentRow]:
        rows = pack(*args)
        return [replace(one, position=rows[0].position) for one in rows]

    patch.setattr(uploads, "pack", misplaced)


def upload_no_aborted_index(patch: pytest.MonkeyPatch) -> None:
    """Segments go to the bucket without their indexes of aborted transactions."""
    patch.setattr(packing, "INDEXES", tuple(one for one in packing.INDEXES if one != TXN_INDEX))


def clean_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """The cleaner goes past the last stable offset.

    Most transactions are aborted, some after their records have removed others.
    """

    def bound(log: Any, first_dirty: int, now_ms: int) -> tuple[int, policy.Bound]:
        return log.segments[-1].base_offset, policy.Bound.ACTIVE_SEGMENT

    patch.setattr(policy, "_first_uncleanable_offset", bound)
    patch.setattr(producers, "_NO_COMMIT_SHARE", 0.7)


def write_old_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of producers lacks the last batch before its offset."""
    update, snapshot = ProducerStates.update, ProducerStates.snapshot
    before: dict[ProducerStates, bytes] = {}

    def keep(self: ProducerStates, *args: Any) -> None:
        before[self] = snapshot(self)
        update(self, *args)

    def old(self: ProducerStates) -> bytes:
        return before.get(self) or snapshot(self)

    patch.setattr(ProducerStates, "update", keep)
    patch.setattr(ProducerStates, "snapshot", old)


def store_in_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """The catalog takes rows of segments that were uploaded in a former epoch of their leader."""
    check = segment_rows.check_led

    def careless(connection: Connection, led: Leadership) -> Mapping[Partition, Any]:
        check(connection, Leadership(led.session, {}))
        return segment_rows.offsets_of(connection, led.epochs.keys())

    patch.setattr(segment_rows, "check_led", careless)
    move_often(patch)


def exchange_in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    """A leader has cleaned segments, and the catalog does not hear of them."""

    async def exchange(self: CleanedUpload, *_: Any) -> None:
        pass

    patch.setattr(CleanedUpload, "_exchange", exchange)


def forget_log_starts(patch: pytest.MonkeyPatch) -> None:
    """A log that was built begins with the first record that the bucket has."""
    finish = Builder.finish

    def forgetful(self: Builder, wanted: Any, built: Any, stored: Any, now_ms: int) -> None:
        stored = {key: replace(one, log_start_offset=0) for key, one in stored.items()}
        finish(self, wanted, built, stored, now_ms)

    patch.setattr(Builder, "finish", forgetful)


def trim_early(patch: pytest.MonkeyPatch) -> None:
    """Entries of the WAL go before segments have all of their records."""

    def stored(connection: Connection, partitions: Collection[Partition]) -> Any:
        found = segment_rows.offsets_of(connection, partitions)
        return {key: one._replace(stored_offset=INT64_MAX) for key, one in found.items()}

    patch.setattr(wal_trimming, "offsets_of", stored)


def fetch_no_indexes(patch: pytest.MonkeyPatch) -> None:
    """A log is read back without the indexes of its segments."""

    def fetch(self: ReadableLog) -> None:
        for segment in self.segments:
            segment.log.read(0, segment.size_bytes)

    patch.setattr(ReadableLog, "fetch", fetch)
