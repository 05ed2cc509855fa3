"""Objects of the bucket that nothing names.

1. A session that is closed commits no row any more. So an object of it that neither a row nor a
   note on garbage names then, and that is there afterwards, stays nameless: it is an orphan.
2. An object of an open session may be an upload whose row follows.
3. A request to store an object may end late: an orphan may appear after its session.
4. A catalog that was restored from a copy lacks the names of objects that are newer. So nameless
   objects of all sessions before the restore are kept, until an operator says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.object_rows import Sessions, nameless, read_sessions
from odradek.broker.metadata.statements import Connection
from odradek.storage.objects.store import ObjectMissing, ObjectStore, StoredObject

T = TypeVar("T")

_WAL, _PROBE = "wal", "probe/"
# Of the WAL and of segments; those of jobs have the number of a lease in between.
_KEY = re.compile(
    rf"(?P<kind>{_WAL}|segments|cleaned)/(?P<session>\d{{10,}})/(\d{{6,}}/)?(?P<number>\d{{12,}})"
)
_KEYS_AT_ONCE = 256


class Leftover(NamedTuple):
    """An object without a name.

    `is_unknown` if the catalog has never had its session, `is_kept` if that ended with a restore.
    """

    object: StoredObject
    is_unknown: bool
    is_kept: bool


class _Place(NamedTuple):
    kind: str
    session: int
    number: int


def is_ours(key: str) -> bool:
    """Return whether brokers make such keys; the rest is somebody else's."""
    return key.startswith(_PROBE) or _KEY.fullmatch(key) is not None


def session_of(key: str) -> int:
    """Return the session whose broker has made an object, 0 if its key has none."""
    place = _place(key)
    return 0 if place is None else place.session


def find_leftovers(
    engine: Engine,
    store: ObjectStore,
    threads: Executor,
    listed: Iterable[StoredObject],
    on_upload: Callable[[StoredObject], None],
) -> Iterator[Leftover]:
    """Yield the objects without a name among some that were listed before, all of them brokers'.

    `on_upload` is called with those that may get a name. Raises MetadataError and
    ObjectStoreError.
    """
    for some in in_parts(listed, _KEYS_AT_ONCE):
        sessions, keys = _look(engine, some)
        there = threads.map(partial(_is_there, store), keys)
        remaining = {key for key, is_there in zip(keys, there, strict=True) if is_there}
        for one in some:
            if one.key not in remaining:
                continue
            session = session_of(one.key)
            if session in sessions.open:
                on_upload(one)
            else:
                is_kept = 0 < session <= sessions.restored
                yield Leftover(one, session > sessions.last, is_kept)


def delete_orphans(engine: Engine, store: ObjectStore, orphans: Sequence[StoredObject]) -> None:
    """Delete orphans that the catalog still does not name.

    Raises MetadataError and ObjectStoreError.
    """
    for some in in_parts(orphans, _KEYS_AT_ONCE):
        store.delete(_look(engine, some)[1])


def in_parts(items: Iterable[T], count_max: int) -> Iterator[list[T]]:
    """Yield items some at a time."""
    iterator = iter(items)
    while part := list(islice(iterator, count_max)):
        yield part


def _look(engine: Engine, some: Sequence[StoredObject]) -> tuple[Sessions, list[str]]:
    keys = [one.key for one in some]
    places = [place for key in keys if (place := _place(key)) is not None]
    entries = [(one.session, one.number) for one in places if one.kind == _WAL]

    def look(connection: Connection) -> tuple[Sessions, list[str]]:
        return read_sessions(connection), nameless(connection, keys, entries)

    return engine.read(look)


def _place(key: str) -> _Place | None:
    found = _KEY.fullmatch(key)
    return found and _Place(found["kind"], int(found["session"]), int(found["number"]))


def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        store.size(key)
    except ObjectMissing:
        return False
    return True
