"""The log of changes in a catalog: each names the rows that it concerned.

A broker that follows reads the names after its own revision, then the rows as they are now. So a
row that changed many times is read once, and no change has to be undone or merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum

from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.registrations import absent_members
from odradek.broker.catalog.sessions import Session, open_sessions
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import (
    Resource,
    ResourceType,
    RowChanges,
    SecurityKind,
    TopicRecord,
)
from odradek.dataclass import dataclass

_SEPARATOR = "/"
# A broker follows within a fraction of a second; one that is further behind has to start again.
KEPT_CHANGES = 100_000
_PRUNED_AT_ONCE = 1_000


class Kind(IntEnum):
    """The tables of which rows can change; the key of a row is a text."""

    TOPIC = 1  # the topic's id, in hexadecimal
    CONFIG = 2  # the type and the name of the owner
    FEATURE = 3  # nothing: there are few
    SECURITY = 4  # the kind and the name
    SESSION = 5  # nothing


Change = tuple[Kind, str]


class WentBack(MetadataError):
    """The catalog lacks changes that this broker knows: it is a stale copy."""


def topic(topic_id: bytes) -> Change:
    """Return the change of a topic."""
    return Kind.TOPIC, topic_id.hex()


def config(owner: Resource) -> Change:
    """Return the change of an owner's settings."""
    return Kind.CONFIG, f"{owner.type:d}{_SEPARATOR}{owner.name}"


def security(kind: SecurityKind, name: str) -> Change:
    """Return the change of a row about security."""
    return Kind.SECURITY, f"{kind:d}{_SEPARATOR}{name}"


FEATURES: Change = Kind.FEATURE, ""
SESSIONS: Change = Kind.SESSION, ""


@dataclass(frozen=True, slots=True)
class News:
    """The rows that others changed, as they are now; None stands for one that is gone."""

    topics: Mapping[bytes, TopicRecord | None] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] | None = None
    security: Mapping[SecurityKind, RowChanges] = field(default_factory=dict)
    sessions: tuple[Session, ...] | None = None
    # The registered brokers without a session; only with `sessions`.
    absent: tuple[Member, ...] = ()


def note(
    connection: Connection, change_id: str, changed: Iterable[Change]
) -> int:
    """Count a change, and name the rows that it concerns; return its revision."""
    ((revision,),) = connection.execute(
        "UPDATE revision SET number = number + 1 RETURNING number"
    )
    write(connection, revision, change_id, changed)
    prune(connection, revision)
    return int(revision)


def write(
    connection: Connection, revision: int, change_id: str, changes: Iterable[Change]
) -> None:
    """Note the rows that the change of a revision concerned; one without rows is noted, too."""
    named = list(dict.fromkeys(changes)) or [FEATURES]  # followers look for the revision's id
    connection.execute_many(
        "INSERT INTO change (revision, place, id, kind, key) VALUES (?, ?, ?, ?, ?)",
        [(revision, place, change_id, kind, key) for place, (kind, key) in enumerate(named)],
    )


def prune(connection: Connection, revision: int) -> None:
    """Forget the changes that every broker has followed long since."""
    if revision % _PRUNED_AT_ONCE == 0:
        connection.execute("DELETE FROM change WHERE revision <= ?", (revision - KEPT_CHANGES,))


def read(connection: Connection, after_revision: int) -> News:
    """Read the rows that changed after a revision."""
    rows = connection.execute(
        "SELECT DISTINCT kind, key FROM change WHERE revision > ?", (after_revision,)
    )
    keys: dict[Kind, list[str]] = {}
    for kind, key in rows:
        keys.setdefault(Kind(kind), []).append(key)
    statements = CatalogStatements(connection)
    topic_ids = [bytes.fromhex(key) for key in keys.get(Kind.TOPIC, ())]
    topics = statements.topics_of(topic_ids)
    return News(
        {one: topics.get(one) for one in topic_ids},
        _configs(connection, keys.get(Kind.CONFIG, ())),
        statements.features() if Kind.FEATURE in keys else None,
        _security(connection, keys.get(Kind.SECURITY, ())),
        open_sessions(connection) if Kind.SESSION in keys else None,
        absent_members(connection) if Kind.SESSION in keys else (),
    )


def revision_of(connection: Connection) -> int:
    """Return the number of changes in a catalog."""
    ((revision,),) = connection.execute("SELECT number FROM revision")
    return int(revision)


def id_of(connection: Connection, revision: int) -> str | None:
    """Return the id of the change that led to a revision, None when it is not there."""
    rows = connection.execute(
        "SELECT id FROM change WHERE revision = ? AND place = 0", (revision,)
    )
    return str(rows[0][0]) if rows else None


def check_past(connection: Connection, address: str, known: tuple[int, str]) -> int:
    """Return the revision of a catalog.

    Raises WentBack unless it has the last change that a broker knows, `known` by its revision and
    its id.
    """
    revision = revision_of(connection)
    known_revision, known_id = known
    if not known_revision:
        return revision
    if revision - known_revision >= KEPT_CHANGES:
        raise WentBack(
            f"this broker has not followed the catalog {address} for too many changes: start it "
            "again"
        )
    if revision < known_revision or id_of(connection, known_revision) != known_id:
        raise WentBack(
            f"the catalog {address} lacks change {known_revision}, which this broker knows; its "
            f"own last one is {revision}. It is a stale copy: bring the current one back, or "
            "start this broker again to go on from the copy"
        )
    return revision


def _configs(
    connection: Connection, keys: Sequence[str]
) -> Mapping[Resource, Mapping[str, str]]:
    found: dict[Resource, dict[str, str]] = {}
    for kind, owner in _split(keys):
        found[Resource(ResourceType(kind), owner)] = {}
    query = (
        "SELECT resource_type, resource_name, name, value FROM config JOIN (KEYS) AS given"
        " ON resource_type = given.column1 AND resource_name = given.column2"
    )
    rows = query_for(connection, query, set(_split(keys)))
    for kind, owner, name, value in sorted(rows):
        found[Resource(ResourceType(kind), owner)][name] = value
    return found


def _security(connection: Connection, keys: Sequence[str]) -> Mapping[SecurityKind, RowChanges]:
    found: dict[SecurityKind, dict[str, str | None]] = {}
    for kind, name in _split(keys):
        found.setdefault(SecurityKind(kind), {})[name] = None
    query = (
        "SELECT kind, name, value FROM security JOIN (KEYS) AS given"
        " ON kind = given.column1 AND name = given.column2"
    )
    for kind, name, value in query_for(connection, query, set(_split(keys))):
        found[SecurityKind(kind)][name] = value
    return dict(found)


def _split(keys: Iterable[str]) -> Iterator[tuple[int, str]]:
    for key in keys:
        kind, _, name = key.partition(_SEPARATOR)
        yield int(kind), name
