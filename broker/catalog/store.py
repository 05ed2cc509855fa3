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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from odradek.broker.catalog import changes
from odradek.broker.catalog.changes import Change, News
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.sessions import (
    check_session,
    close_others,
    close_session,
    expired_sessions,
    open_session,
    open_sessions,
    renew_session,
)
from odradek.broker.catalog.statements import CatalogStatements, Partition
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.changes import OutOfDate
from odradek.broker.metadata.members import NO_LEADER, Leader, Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    RowChanges,
    SecurityKind,
    TopicRecord,
)

T = TypeVar("T")


class WentBack(MetadataError):
    """The catalog lacks changes that this broker knows: it is a stale copy."""


class _Line:
    """A connection to the database, and the thread that waits for it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def transact(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.transact(work))

    async def touch(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.touch(work))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.read(work))

    async def close(self) -> None:
        await self._run(self.engine.close)
        self._thread.shutdown()

    async def _run(self, operation: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, operation)


class CatalogStore:
    """A MetadataStore in a shared database. The event loop owns it; threads wait.

    Leases are extended, and the others' changes read, on a connection of their own: they must not
    wait for a large change.
    """

    def __init__(
        self, open_one: Callable[[], Engine], new_id: Callable[[], str]
    ) -> None:
        """`open_one` makes a connection; `new_id` makes an id that no change had before."""
        self._main, self._side = _Line(open_one(), "metadata"), _Line(open_one(), "session")
        self._engine, self._new_id = self._main.engine, new_id
        # Notes that are written with the next change: partitions that have got their files, and
        # deleted topics whose files are gone.
        self._made: set[Partition] = set()
        self._removed: set[bytes] = set()
        self._host = ""
        self._revision, self._change_id = 0, ""
        self.session_epoch = 0

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def address(self) -> str:
        """The address of the database, without secrets."""
        return self._engine.address

    async def prepare(self, initial: Callable[[], Metadata]) -> bool:
        """Create or update the tables; return whether the catalog is new.

        A new one begins with `initial`. Raises MetadataError.
        """

        def work(connection: Connection) -> bool:
            migrate(self._engine, connection)
            statements = CatalogStatements(connection)
            if statements.cluster_id() is not None:
                return False
            _write(statements, initial())
            return True

        return await self._main.transact(work)

    async def join(self, member: Member, lease_ms: int, *, adopts: bool = False) -> None:
        """Open the session of this broker, and let it lead the partitions of its host again.

        With `adopts` it takes the partitions without a host, which the catalog began with.
        Raises MetadataError while its node id is in use.
        """

        def work(connection: Connection) -> int:
            statements = CatalogStatements(connection)
            if adopts:
                statements.name_host("", member.host)
            gone = close_others(connection, self._engine, member)
            topic_ids = [one for node_id in gone for one in statements.withdraw_leader(node_id)]
            topic_ids += statements.lead_orphans(member.host, member.node_id)
            epoch = open_session(connection, self._engine, member, lease_ms)
            self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))
            return epoch

        self.session_epoch = await self._main.transact(work)
        self._host = member.host

    async def leave(self, node_id: int) -> None:
        """Close the session of this broker; nobody leads its partitions until it comes back."""

        def work(connection: Connection) -> None:
            check_session(connection, self.session_epoch)
            close_session(connection, self._engine, self.session_epoch)
            statements = CatalogStatements(connection)
            statements.note_partitions_made(self._made)
            statements.note_removed(self._host, self._removed)
            topic_ids = statements.withdraw_leader(node_id)
            self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))

        await self._main.transact(work)
        self.session_epoch = 0

    async def renew(self, lease_ms: int) -> None:
        """Extend the lease of the session. Raises SessionClosed."""
        epoch = self.session_epoch
        await self._side.touch(
            lambda connection: renew_session(connection, self._engine, epoch, lease_ms)
        )

    async def expel(self) -> Sequence[Member]:
        """Close the sessions whose leases have ended; return their brokers."""

        def overdue(connection: Connection) -> bool:
            return bool(expired_sessions(connection, self._engine))

        def work(connection: Connection) -> Sequence[Member]:
            check_session(connection, self.session_epoch)
            statements = CatalogStatements(connection)
            expired = expired_sessions(connection, self._engine)
            topic_ids: list[bytes] = []
            for session in expired:
                close_session(connection, self._engine, session.epoch)
                topic_ids += statements.withdraw_leader(session.member.node_id)
            if expired:
                self._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))
            return [session.member for session in expired]

        if not await self._side.read(overdue):
            return ()
        return await self._side.transact(work)

    async def members(self) -> tuple[Member, ...]:
        """Return the brokers with open sessions."""
        found = await self._main.read(open_sessions)
        return tuple(session.member for session in found)

    async def load(self) -> Metadata:
        def work(connection: Connection) -> tuple[Metadata, int, str]:
            statements = CatalogStatements(connection)
            metadata = replace(statements.load(), removals=statements.removals(self._host))
            return metadata, *self._head(connection)

        metadata, revision, change_id = await self._main.read(work)
        self._revision, self._change_id = revision, change_id
        return metadata

    async def settle(self) -> None:
        """Do nothing: a database has no copies to repair."""

    async def has_news(self) -> bool:
        """Return whether others have changed the metadata. Raises WentBack."""

        def work(connection: Connection) -> bool:
            revision, _ = self._head(connection)
            self._check_past(connection, revision)
            return revision != self._revision

        return await self._side.read(work)

    async def news(self) -> tuple[int, str, News] | None:
        """Return the revision of the catalog and the changes up to it, None without changes.

        The caller puts them into memory, then calls `advance`. Raises WentBack.
        """

        def work(connection: Connection) -> tuple[int, str, News] | None:
            revision, change_id = self._head(connection)
            self._check_past(connection, revision)
            if revision == self._revision:
                return None
            return revision, change_id, changes.read(connection, self._revision)

        return await self._side.read(work)

    def advance(self, revision: int, change_id: str) -> None:
        """Note the revision that memory has now."""
        self._revision, self._change_id = revision, change_id

    # --- changes of the metadata ------------------------------------------------------------

    async def create_topics(self, topics: Sequence[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        await self._change(
            lambda to: to.create_topics(topics),
            [
                one
                for record, _ in topics
                for one in (
                    changes.topic(record.topic_id),
                    changes.config(Resource(ResourceType.TOPIC, record.name)),
                )
            ],
        )

    def note_made(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        self._made.update((topic_id, number) for number in partitions)

    def note_removed(self, topic_ids: Iterable[bytes]) -> None:
        self._removed.update(topic_ids)

    async def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Delete topics at once: hosts that still have files of them are noted with that."""
        await self._change(lambda to: to.finish_deletion(topic_ids), map(changes.topic, topic_ids))

    async def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Do nothing: a topic half deleted would keep its name until a broker starts."""

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

    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve a block; no decision by memory depends on it, so the revision stays."""

        def work(connection: Connection) -> int:
            check_session(connection, self.session_epoch)
            return CatalogStatements(connection).allocate_producer_ids(count)

        return await self._main.transact(work)

    async def close(self) -> None:
        """Close the database."""
        await self._main.close()
        await self._side.close()

    # --- parts -----------------------------------------------------------------------------

    async def _change(
        self, work: Callable[[CatalogStatements], T], changed: Iterable[Change]
    ) -> T:
        made, removed = frozenset(self._made), frozenset(self._removed)

        def transact(connection: Connection) -> tuple[T, int, str]:
            check_session(connection, self.session_epoch)
            revision, _ = self._head(connection)
            self._check_past(connection, revision)
            if revision != self._revision:
                raise OutOfDate
            statements = CatalogStatements(connection)
            result = work(statements)
            statements.note_partitions_made(made)
            statements.note_removed(self._host, removed)
            return result, *self._note(connection, changed)

        result, revision, change_id = await self._main.transact(transact)
        self.advance(revision, change_id)
        self._made -= made
        self._removed -= removed
        return result

    def _note(self, connection: Connection, changed: Iterable[Change]) -> tuple[int, str]:
        """Count a change, and name the rows that it concerns; return its revision and id."""
        ((revision,),) = connection.execute(
            "UPDATE revision SET number = number + 1 RETURNING number"
        )
        change_id = self._new_id()
        changes.write(connection, revision, change_id, changed)
        changes.prune(connection, revision)
        return revision, change_id

    def _head(self, connection: Connection) -> tuple[int, str]:
        ((revision,),) = connection.execute("SELECT number FROM revision")
        return revision, changes.id_of(connection, revision) or ""

    def _check_past(self, connection: Connection, revision: int) -> None:
        """Raise WentBack unless the catalog has the last change that memory has."""
        if not self._revision:
            return
        if revision - self._revision >= changes.KEPT_CHANGES:
            raise WentBack(
                f"this broker has not followed the catalog {self.address} for too many changes: "
                "start it again"
            )
        has_it = changes.id_of(connection, self._revision) == self._change_id
        if revision < self._revision or not has_it:
            raise WentBack(
                f"the catalog {self.address} lacks change {self._revision}, which this broker "
                f"knows; its own last one is {revision}. It is a stale copy: bring the current "
                "one back, or start this broker again to go on from the copy"
            )


def _write(statements: CatalogStatements, metadata: Metadata) -> None:
    """Write the first metadata of a cluster; the host of its partitions is not known yet."""
    statements.begin_cluster(metadata.cluster_id, metadata.next_producer_id)
    statements.create_topics(
        [
            (
                replace(one, leaders=tuple(_homeless(one, n) for n in range(one.partition_count))),
                metadata.configs.get(Resource(ResourceType.TOPIC, one.name), {}),
            )
            for one in metadata.topics
        ]
    )
    # The host removes their files once it has a name.
    statements.finish_deletion([one.topic_id for one in metadata.topics if one.is_deleting])
    statements.replace_configs(
        {
            owner: values
            for owner, values in metadata.configs.items()
            if owner.type is not ResourceType.TOPIC
        }
    )
    statements.finalize_features(metadata.features)
    for kind, rows in metadata.security.items():
        statements.change_security(kind, rows)


def _homeless(record: TopicRecord, number: int) -> Leader:
    return Leader(NO_LEADER, 0, host="", replica=NO_LEADER, is_made=record.is_made(number))
