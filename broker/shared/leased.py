"""Leases of the cleaning of shared partitions, as a job outside of the brokers has them.

A job takes leases, waits until the leaders of the partitions have granted them, and carries out
the parts of the cleanings (leased_parts.py), wherever it likes. It proposes the results, and waits
for the leaders' consent. A thread shows meanwhile that the job lives.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TypeVar

from odradek.broker.catalog import cleaning_leases
from odradek.broker.catalog.cleaning_leases import NOT_GRANTED, GrantedTerms
from odradek.broker.catalog.engines import Engine, open_engine
from odradek.broker.catalog.segment_rows import SegmentRow, segments_of
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import ANY_HOST
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.leased_terms import Proposal, Terms
from odradek.broker.shared.packing import segment_sizes
from odradek.broker.shared.snapshot import (
    SharedLogs,
    SnapshotError,
    all_partitions,
    in_transaction,
)
from odradek.cleaner.rules.policy import merge_groups
from odradek.dataclass import dataclass

T = TypeVar("T")

_BEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class LeasedLog:
    """A partition that a job may clean now: its sealed segments, and the parts that they form."""

    partition: Partition
    session: int
    terms: Terms
    rows: tuple[SegmentRow, ...]
    parts: tuple[range, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the segments."""
        return sum(row.size_bytes for row in self.rows)

    def size_of(self, part: int) -> int:
        """Return the size of a part."""
        places = self.parts[part]
        return sum(row.size_bytes for row in self.rows[places.start : places.stop])


@dataclass(frozen=True, slots=True)
class Standing:
    """The leases of a job: granted ones with their sessions, and the answers to the others.

    An answer without text means that the proposal was accepted. `lost` leases are there no more.
    """

    granted: Mapping[Partition, int]
    answers: Mapping[Partition, str]
    lost: frozenset[Partition]


def find_shared(logs: SharedLogs, wants: Callable[[str, int], bool]) -> dict[Partition, str]:
    """Return the names of the shared partitions that are wanted, by topic and number.

    Raises SnapshotError.
    """

    def read(connection: Connection) -> dict[Partition, str]:
        return {
            key: f"{name}-{key[1]}"
            for key, name, host in all_partitions(connection)
            if host == ANY_HOST and wants(name, key[1])
        }

    return in_transaction(logs, read)


class Leases:
    """The leases of one job; a context that gives them back."""

    def __init__(self, logs: SharedLogs) -> None:
        self._logs = logs
        self.job = secrets.token_hex(6)
        self._engine = open_engine(logs.catalog)
        self._held: set[Partition] = set()
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="leases", daemon=True)

    def __enter__(self) -> Leases:
        self._beating.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beating.join()
        try:
            self.give_back(set(self._held))
        except SnapshotError:
            if error is None:
                raise
        finally:
            self._engine.close()

    def take(self, partitions: Collection[Partition]) -> set[Partition]:
        """Take leases; return the partitions that are gone, or leased to other jobs.

        Raises SnapshotError, as all methods do.
        """
        refused = self._touch(cleaning_leases.take, job=self.job, partitions=partitions)
        self._held |= set(partitions) - refused
        return refused

    def standing(self) -> Standing:
        """Return the leases as they are now."""
        read = partial(cleaning_leases.leases_of, job=self.job)
        own = {one.partition: one for one in self._answer(self._engine.read, read)}
        return Standing(
            {
                key: one.session
                for key, one in own.items()
                if one.session != NOT_GRANTED and one.answer is None
            },
            {key: one.answer for key, one in own.items() if one.answer is not None},
            frozenset(self._held - own.keys()),
        )

    def logs(self, partitions: Collection[Partition]) -> list[LeasedLog]:
        """Return the logs of granted leases; those that are not granted any more are left out."""

        def read(connection: Connection) -> list[LeasedLog]:
            granted = cleaning_leases.granted_terms(connection, self.job, partitions)
            stored = segments_of(connection, {one.partition for one in granted})
            return [
                _leased(one, stored[one.partition].segments)
                for one in granted
                if one.partition in stored
            ]

        return self._answer(self._engine.read, read)

    def propose(self, log: LeasedLog, proposal: Proposal) -> bool:
        """Propose to exchange segments; return whether the lease is still the one granted."""
        return self._touch(
            cleaning_leases.propose,
            job=self.job,
            partition=log.partition,
            session=log.session,
            proposal=proposal.encode(),
        )

    def give_back(self, partitions: Collection[Partition]) -> None:
        """End leases."""
        if partitions:
            self._touch(cleaning_leases.give_back, job=self.job, partitions=partitions)
            self._held -= set(partitions)

    def _touch(self, work: Callable[..., T], **values: object) -> T:
        return self._answer(self._engine.touch, partial(work, engine=self._engine, **values))

    def _answer(
        self, run: Callable[[Callable[[Connection], T]], T], work: Callable[[Connection], T]
    ) -> T:
        try:
            return run(work)
        except MetadataError as error:
            raise SnapshotError(str(error)) from error

    def _beat(self) -> None:
        """Show that the job lives; a thread, with a connection of its own."""
        engine: Engine = open_engine(self._logs.catalog)
        try:
            while not self._ended.wait(_BEAT_S):
                try:
                    engine.touch(partial(cleaning_leases.beat, engine=engine, job=self.job))
                except MetadataError:
                    continue  # the job notices that its leases are lost
        finally:
            engine.close()


def _leased(lease: GrantedTerms, rows: Iterable[SegmentRow]) -> LeasedLog:
    terms = Terms.decode(lease.terms)
    sealed = tuple(
        row
        for row in rows
        if not row.is_open
        and row.next_offset > terms.log_start_offset
        and row.base_offset < terms.first_uncleanable_offset
    )
    return LeasedLog(lease.partition, lease.session, terms, sealed, _parts(terms, sealed))


def _parts(terms: Terms, rows: Collection[SegmentRow]) -> tuple[range, ...]:
    """Group segments as the leader's cleaner does."""
    return tuple(
        merge_groups(
            [segment_sizes(row) for row in rows],
            log_bytes_max=terms.segment_bytes,
            index_bytes_max=terms.config.segment_index_bytes,
            end_offset=terms.first_uncleanable_offset,
        )
    )
