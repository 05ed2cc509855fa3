"""Mistakes about the WAL, takeovers and garbage that a simulation of shared topics has to find."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.catalog import membership, wal_backend, wal_reading
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.catalog.wal_rows import NewRow
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import janitor
from odradek.broker.shared.building import Builder
from odradek.broker.wal.wal import Wal
from odradek.storage.log import Log
from odradek.storage.readable_log import ReadableLog
from tests.simulation.cluster import movers
from tests.simulation.shared.run import SharedNemesis


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """The WAL says that all is committed at once."""

    def committed(self: Wal) -> Any:
        done = self._loop.create_future()
        done.set_result(None)
        return done

    patch.setattr(Wal, "committed", committed)


def commit_without_session(patch: pytest.MonkeyPatch) -> None:
    """The catalog takes entries of a closed session."""

    def commit(
        connection: Connection, session: int, first: int, entries: Sequence[NewRow]
    ) -> None:
        connection.execute_many(
            "INSERT INTO wal_entry (session, sequence, size_bytes, runs, body)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [
                (session, sequence, one.size_bytes, one.runs, one.body)
                for sequence, one in enumerate(entries, first)
            ],
        )

    patch.setattr(wal_backend, "commit_entries", commit)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """A log that was built does not know its producers, but for open transactions."""
    finish = Builder.finish

    def forgetful(
        self: Builder, wanted: Any, built: dict[Partition, Log], stored: Any, now_ms: int
    ) -> None:
        finish(self, wanted, built, stored, now_ms)
        for log in built.values():
            for one in [one for one in log.producers if one.transaction_first_offset < 0]:
                del log.producers._producers[one.producer_id]

    patch.setattr(Builder, "finish", forgetful)


def show_the_end(patch: pytest.MonkeyPatch) -> None:
    """Consumers read up to the log's end."""
    patch.setattr(ReadableLog, "high_watermark", property(lambda log: log.log_end_offset))


def delete_what_is_named(patch: pytest.MonkeyPatch) -> None:
    """An object is deleted once some row has ceased to name it."""

    def due(connection: Connection, engine: Any, age_ms: int, count_max: int) -> list[str]:
        keys = connection.execute("SELECT key FROM garbage ORDER BY key LIMIT ?", (count_max,))
        return [key for (key,) in keys]

    patch.setattr(janitor, "due_garbage", due)


def forget_handovers(patch: pytest.MonkeyPatch) -> None:
    """A broker leads partitions again before it knows the outcome of a handover.

    Partitions move often, the catalog loses answers, and brokers follow it late: the two lead at
    the same time only if all of this meets.
    """

    async def wait(self: CatalogStore) -> None:
        pass

    patch.setattr(CatalogStore, "wait_for_changes", wait)
    patch.setattr(membership, "_FOLLOW_S", 1.0)
    patch.setattr(movers, "_PAUSE_S", 0.15)
    patch.setattr(SharedNemesis, "steps", lambda self: {self.spoil_catalog: 1})


def forget_small_entries(patch: pytest.MonkeyPatch) -> None:
    """A log is built without the entries of the WAL whose bodies the catalog has."""
    read = wal_reading._read

    async def forgetful(line: Any, bucket: Any, threads: Any, found: Any) -> Any:
        return await read(line, bucket, threads, [one for one in found if not one[0].is_inline])

    patch.setattr(wal_reading, "_read", forgetful)


def discard_named_objects(patch: pytest.MonkeyPatch) -> None:
    """The object of an entry is discarded if its upload was slow, also without another body."""

    async def commit(self: Wal, sealed: Any) -> None:
        await asyncio.sleep(self._usual.longest_s)
        await self._backend.discard(sealed.sequence)

    patch.setattr(Wal, "_commit_if_slow", commit)
