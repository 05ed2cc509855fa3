"""The metadata in a catalog: every change is a transaction of a database that brokers share.

A broker decides by its memory, which has the metadata of one revision. The transaction of a
change refuses when the catalog has another revision by then: the broker first takes over the
changes of the others, then decides again. So no decision rests on metadata that has changed.

1. The revision grows by one with each change, and changes commit in the order of revisions.
2. A change commits only while the session of its broker is open.
3. A revision that memory has is never lost: a catalog that lacks it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from odradek.broker.catalog import changes
from odradek.broker.catalog.changes import Change, News
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.hosts import HostStatements
from odradek.broker.catalog.lines import Calls, Line
from odradek.broker.catalog.passages import refuse_exported
from odradek.broker.catalog.probes import ended, late
from odradek.broker.catalog.registrations import absent_members, prune_sessions
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.sessions import (
    check_session,
    close_others,
    close_session,
    open_session,
    open_sessions,
    renew_session,
)
from odradek.broker.catalog.silences import Silences, close_silent, open_leases
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.changes import OutOfDate
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    RowChanges,
    SecurityKind,
    TopicRecord,
)
from odradek.storage.checkpoints import LeftLog

T = TypeVar("T")


class CatalogStore:
    """A MetadataStore in a shared database. The event loop owns it; threads wait.

    Leases are extended on a connection of their own: they must wait neither for a large change nor
    for the news of one. News are read, and silent brokers replaced, on a third.
    """

    def __init__(
        self, open_one: Callable[[], Engine], new_id: Callable[[], str]
    ) -> None:
        """`open_one` makes a connection; `new_id` makes an id that no change had before."""
        self.calls, self._open_one = Calls(), open_one
        self._main, self._side = self.open_line("metadata"), self.open_line("news")
        self._lease = self.open_line("session")
        self._engine, self._new_id = self._main.engine, new_id
        # Notes that are written with the next change: partitions that have got their files, and
        # deleted topics whose files are gone.
        self._made: set[Partition] = set()
        self._removed: set[bytes] = set()
        # Topics that `begin_deletion` has deleted.
        self._deleted: set[bytes] = set()
        self._host, self._shares_host = "", False
        # The revision that memory has, and the id of its change.
        self._known = 0, ""
        self.session_epoch = 0
        self._silences = Silences()
        # Refuses the next change: memory could not be brought up to date.
        self.refusal: MetadataError | None = None

    @property
    def revision(self) -> int:
        return self._known[0]

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def engine_name(self) -> str:
        """The name of the kind of database."""
        return self._engine.name

    @property
    def address(self) -> str:
        """The address of the database, without secrets."""
        return self._engine.address

    def open_line(self, name: str) -> Line:
        """Return another connection, for its caller to close."""
        return Line(self._open_one(), name, self.calls)

    async def prepare(self, initial: Callable[[], Metadata]) -> bool:
        """Create or update the tables; return whether the catalog is new.

        A new one begins with `initial`. Raises MetadataError.
        """

        def work(connection: Connection) -> bool:
            migrate(self._engine, connection)
            refuse_exported(connection, self.address)
            statements = CatalogStatements(connection)
            if statements.cluster_id() is not None:
                return False
            statements.fill(initial())
            return True

        return await self._main.transact(work)

    async def join(self, member: Member, lease_ms: int, *, shares_host: bool = False) -> None:
        """Open the session of this broker, and let it lead the partitions of its host again.

        With `shares_host` it is one of several brokers of the host, and takes those it led last.
        Raises MetadataError while its node id is in use.
        """
        known = self._known

        def work(connection: Connection) -> int:
            refuse_exported(connection, self.address)
            changes.check_past(connection, self.address, known)
            statements = CatalogStatements(connection)
            gone = close_others(connection, self._engine, member, shares_host=shares_host)
            topic_ids = [one for node_id in gone for one in statements.withdraw_leader(node_id)]
            topic_ids += statements.lead_orphans(
                member.host, member.node_id, shares_host=shares_host
            )
            epoch = open_session(connection, self._engine, member, lease_ms)
            prune_sessions(connection, epoch)
            self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))
            return epoch

        self.session_epoch = await self._main.transact(work)
        self._host, self._shares_host = member.host, shares_host

    async def leave(self, node_id: int) -> None:
        """Close the session of this broker; nobody leads its partitions until it comes back."""

        def work(connection: Connection, _: int) -> None:
            close_session(connection, self._engine, self.session_epoch)
            statements = CatalogStatements(connection)
            statements.note_partitions_made(self._made)
            statements.note_removed(self._host, self._removed)
            topic_ids = statements.withdraw_leader(node_id)
            self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))

        await self._transact(self._main, work)
        self.session_epoch = 0

    async def renew(self, lease_ms: int) -> None:
        """Extend the lease of the session. Raises SessionClosed, and WentBack.

        In a stale copy the session may be open that is closed by a change which the copy lacks.
        """
        epoch, known = self.session_epoch, self._known

        def work(connection: Connection) -> None:
            changes.check_past(connection, self.address, known)
            renew_session(connection, self._engine, epoch, lease_ms)

        await self._lease.touch(work)

    async def expel(self, lease_ms: int, late_ms: int) -> Sequence[Member]:
        """Close the sessions that are silent, by the length of a lease; return their brokers.

        One that is late, and whose process has ended, is silent as well.
        """
        leases = await self._side.read(lambda connection: open_leases(connection, self._engine))
        now_s = asyncio.get_running_loop().time()
        silent = self._silences.silent(leases, now_s, lease_ms)
        suspects = [one for one in late(leases, lease_ms - late_ms) if one.key not in silent]
        silent |= await ended(suspects)
        if not silent:
            return ()

        def work(connection: Connection, _: int) -> Sequence[Member]:
            members, topic_ids = close_silent(connection, self._engine, silent)
            if members:
                self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))
            return members

        return await self._transact(self._side, work)

    async def members(self) -> tuple[Member, ...]:
        """Return the brokers with open sessions."""
        return tuple(one.member for one in await self._main.read(open_sessions))

    async def absent(self) -> tuple[Member, ...]:
        """Return the registered brokers without open sessions."""
        return await self._main.read(absent_members)

    async def load(self) -> Metadata:
        def work(connection: Connection) -> tuple[Metadata, int, str]:
            statements = CatalogStatements(connection)
            metadata = replace(statements.load(), removals=statements.removals(self._host))
            revision = changes.revision_of(connection)
            return metadata, revision, changes.id_of(connection, revision) or ""

        metadata, revision, change_id = await self._main.read(work)
        self._known = revision, change_id
        return metadata

    async def settle(self) -> None:
        """Do nothing: a database has no copies to repair."""

    async def has_news(self) -> bool:
        """Return whether others have changed the metadata. Raises WentBack."""
        known = self._known  # the thread must not see one that memory gets meanwhile
        return await self._side.read(
            lambda connection: changes.check_past(connection, self.address, known) != known[0]
        )

    async def news(self) -> tuple[int, str, News] | None:
        """Return the revision of the catalog and the changes up to it, None without changes.

        The caller puts them into memory, then calls `advance`. Raises WentBack.
        """
        known = self._known

        def work(connection: Connection) -> tuple[int, str, News] | None:
            revision = changes.check_past(connection, self.address, known)
            if revision == known[0]:
                return None
            change_id = changes.id_of(connection, revision) or ""
            return revision, change_id, changes.read(connection, known[0])

        return await self._side.read(work)

    def advance(self, revision: int, change_id: str) -> None:
        """Note the revision that memory has now."""
        self._known = revision, change_id

    # --- brokers that share a host -------------------------------------------------------------

    async def left_logs(self, topic_ids: Iterable[bytes]) -> dict[Partition, LeftLog]:
        """Return the notes on the logs of topics, which other brokers of the host have left."""
        ids = list(topic_ids)
        return await self._main.read(lambda connection: HostStatements(connection).left_logs(ids))

    async def change_partitions(
        self, work: Callable[[Connection], Sequence[Partition]]
    ) -> Sequence[Partition]:
        """Do work that returns the partitions that it has changed; return them."""

        def change(connection: Connection, _: int) -> Sequence[Partition]:
            changed = work(connection)
            if changed:
                self._note(connection, (changes.topic(topic_id) for topic_id, _ in changed))
            return changed

        return await self._transact(self._main, change)

    async def wait_for_changes(self) -> None:
        """Return once no change of this broker is under way, also one whose answer is lost."""
        # A transaction alone in the database: the one in doubt has the lock until it has ended.
        await self._main.transact(lambda connection: None)

    async def set_targets(self, targets: Mapping[Partition, int]) -> None:
        """Note the brokers that are to lead partitions."""
        await self._change(
            lambda to: to.set_targets(targets), (changes.topic(one) for one, _ in targets)
        )

    # --- changes of the metadata ------------------------------------------------------------

    async def create_topics(self, topics: Sequence[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        records = [record for record, _ in topics]
        owners = (Resource(ResourceType.TOPIC, one.name) for one in records)
        changed = (changes.topic(one.topic_id) for one in records)
        await self._change(
            lambda to: to.create_topics(topics), [*changed, *map(changes.config, owners)]
        )

    def note_made(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        self._made.update((topic_id, number) for number in partitions)

    def note_removed(self, topic_ids: Iterable[bytes]) -> None:
        if self._shares_host:
            return  # other brokers have files of them, too: the next start of the host looks
        self._removed.update(topic_ids)

    async def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Delete topics at once: hosts that still have files of them are noted with that.

        A topic half deleted would keep its name until a broker starts.
        """
        await self._delete(topic_ids)
        self._deleted.update(topic_ids)

    async def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Delete topics that a single broker brought along half deleted."""
        left = [one for one in topic_ids if one not in self._deleted]
        self._deleted.difference_update(topic_ids)
        if left:
            await self._delete(left)

    async def _delete(self, topic_ids: Sequence[bytes]) -> None:
        gone = map(changes.topic, topic_ids)
        await self._change(lambda to: to.delete_topics(topic_ids, self._engine), gone)

    async def enlarge_topics(self, enlarged: Sequence[TopicRecord]) -> None:
        await self._change(
            lambda to: to.enlarge_topics(enlarged),
            (changes.topic(one.topic_id) for one in enlarged),
        )

    async def raise_epochs(self, epochs: Mapping[Partition, int]) -> None:
        """Set leader epochs that this broker has found to be higher in its logs."""
        await self._change(
            lambda to: to.raise_epochs(epochs), (changes.topic(one) for one, _ in epochs)
        )

    async def replace_configs(self, wanted: Mapping[Resource, Mapping[str, str]]) -> None:
        await self._change(lambda to: to.replace_configs(wanted), map(changes.config, wanted))

    async def finalize_features(self, levels: Mapping[str, int]) -> None:
        await self._change(lambda to: to.finalize_features(levels), (changes.FEATURES,))

    async def change_security(self, kind: SecurityKind, wanted: RowChanges) -> None:
        await self._change(
            lambda to: to.change_security(kind, wanted),
            (changes.security(kind, name) for name in wanted),
        )

    async def unregister(self, node_id: int) -> None:
        await self._change(lambda to: to.unregister(node_id), (changes.SESSIONS,))

    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve a block.

        It counts as a change, so that a copy of the database that lacks it is known as stale.
        """

        def work(connection: Connection, _: int) -> int:
            self._note(connection, ())
            return CatalogStatements(connection).allocate_producer_ids(count)

        return await self._transact(self._main, work)

    async def close(self) -> None:
        """Close the database."""
        await asyncio.gather(*(one.close() for one in (self._main, self._side, self._lease)))

    # --- parts -----------------------------------------------------------------------------

    async def _change(
        self, work: Callable[[CatalogStatements], T], changed: Iterable[Change]
    ) -> T:
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal
        made, removed, known = frozenset(self._made), frozenset(self._removed), self._known[0]

        def transact(connection: Connection, present: int) -> tuple[T, int, str]:
            if present != known:
                raise OutOfDate
            statements = CatalogStatements(connection)
            result = work(statements)
            statements.note_partitions_made(made)
            statements.note_removed(self._host, removed)
            return result, *self._note(connection, changed)

        result, revision, change_id = await self._transact(self._main, transact)
        self.advance(revision, change_id)
        self._made -= made
        self._removed -= removed
        return result

    async def _transact(self, line: Line, work: Callable[[Connection, int], T]) -> T:
        """Run work alone in the session; it gets the revision. Raises SessionClosed, WentBack."""
        epoch, known = self.session_epoch, self._known

        def checked(connection: Connection) -> T:
            revision = changes.check_past(connection, self.address, known)
            check_session(connection, epoch)
            return work(connection, revision)

        return await line.transact(checked)

    def _note(self, connection: Connection, changed: Iterable[Change]) -> tuple[int, str]:
        """Count a change, and name the rows that it concerns; return its revision and id."""
        change_id = self._new_id()
        return changes.note(connection, change_id, changed), change_id
