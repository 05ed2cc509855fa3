"""Restores a bucket and a copy of a catalog to the moment of the copy; nobody uses them meanwhile.

1. The catalog has no live session, so its rows stay as they are.
2. Objects that the catalog names are checked, and records that are lost are found.
3. One transaction makes the catalog safe to serve, unless it was changed since the first step.

Objects that are newer than the copy stay in the bucket without a name, see `orphans.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.restoring import Cuts, read_copy, restore, session_after
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.checking import Check, Problem
from odradek.broker.shared.proofs import ENTRY, RECORDS
from odradek.broker.shared.salvage import (
    NO_SALVAGE,
    Cut,
    Salvage,
    plan_salvage,
    shorten_entries,
)
from odradek.storage.objects.store import ObjectStore


class Restoration:
    """One restore: `problems`, then `apply`. All of it waits: call it in a thread."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        threads: Executor,
        *,
        is_quick: bool,
        on_progress: Callable[[int, int], None] = lambda done_bytes, total_bytes: None,
    ) -> None:
        """Look at the catalog; raise MetadataError while brokers use it."""
        self._engine, self._store = engine, store
        self.copy = engine.read(lambda connection: read_copy(connection, engine))
        self.check = Check(
            engine,
            store,
            threads,
            orphans_before_ms=0,
            is_quick=is_quick,
            on_progress=on_progress,
        )
        self._salvage = NO_SALVAGE
        # The logs that lack records, by topic and partition.
        self.cuts: Mapping[tuple[str, int], Cut] = {}
        # Objects of sessions that the copy lacks, or in which they were open.
        self.newer = self.newer_bytes = 0
        self.session = 0

    def problems(self) -> Iterator[Problem]:
        """Check all that the catalog names, and yield the problems; plan the restore.

        Raises MetadataError and ObjectStoreError.
        """
        losses: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        unreadable = 0
        for one in self.check.damage():
            yield one
            unreadable += one.lost == ENTRY
            if one.lost == RECORDS and one.offsets is not None:
                losses[one.topic, one.partition].append(one.offsets)
        for left in self.check.leftovers():
            if left.is_unknown:
                self.newer += 1
                self.newer_bytes += left.object.size_bytes
        self.newer += self.check.uploads
        self.newer_bytes += self.check.upload_bytes
        self.session = session_after(self.copy, self.check.last_session)
        if unreadable:
            raise MetadataError(
                f"the copy {self._engine.address} is damaged: an entry of its WAL cannot be read"
            )
        if self.check.faults:
            self._plan(losses)

    def _plan(self, losses: Mapping[tuple[str, int], Sequence[tuple[int, int]]]) -> None:
        def work(connection: Connection) -> tuple[Salvage, dict[str, bytes]]:
            topics = CatalogStatements(connection).topics()
            ids = {one.name: one.topic_id for one in topics}
            by_id = {(ids[name], number): found for (name, number), found in losses.items()}
            return plan_salvage(connection, by_id), ids

        self._salvage, ids = self._engine.read(work)
        names = {topic_id: name for name, topic_id in ids.items()}
        self.cuts = {
            (names[topic_id], number): cut
            for (topic_id, number), cut in sorted(self._salvage.cuts.items())
        }

    def apply(self, change_id: str) -> None:
        """Do it. Raises MetadataError, ObjectStoreError and DamagedEntry."""
        salvage = self._salvage
        replaced = shorten_entries(self._engine, self._store, self.session, salvage)
        kept = {key: one.kept for key, one in salvage.cuts.items()}
        cuts = Cuts(kept, salvage.dropped, replaced)
        self._engine.transact(
            partial(
                restore,
                engine=self._engine,
                copy=self.copy,
                session=self.session,
                cuts=cuts,
                change_id=change_id,
            )
        )
