"""A session's WAL: bodies in the bucket, rows in the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.catalog.wal_rows import NewRow, commit_entries, object_key
from odradek.broker.errors import MetadataError
from odradek.broker.wal.entries import Entry
from odradek.broker.wal.wal import WalFailure, WalLost
from odradek.storage.objects.store import ObjectExists, ObjectStore, ObjectStoreError


class SessionWal:
    """A WalBackend for one session of a broker."""

    def __init__(self, line: Line, session: int, store: ObjectStore, threads: Executor) -> None:
        """`line` is a connection of its own: commits wait for nothing else. `threads` upload."""
        self._line, self._session = line, session
        self._store, self._threads = store, threads

    async def upload(self, sequence: int, entry: Entry) -> None:
        """Put an entry into the bucket. Raises WalFailure, and WalLost if another one is there."""
        await self._ask(partial(self._put, object_key(self._session, sequence), entry))

    def _put(self, key: str, entry: Entry) -> None:
        parts = entry.object()
        try:
            self._store.create(key, parts)
        except ObjectExists as error:
            # It is there since an earlier try whose answer was lost; or the catalog is an older
            # copy of itself, and another life of this broker had the same session in it.
            if self._store.read(key) != b"".join(parts):
                raise WalLost(f"{error}; was the catalog restored from a copy?") from error

    async def discard(self, sequence: int) -> None:
        """Delete the object of an entry, if it is there. Raises WalFailure."""
        await self._ask(partial(self._store.delete, [object_key(self._session, sequence)]))

    async def _ask(self, request: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, request)
        except ObjectStoreError as error:
            raise WalFailure(str(error)) from error

    async def commit(self, first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
        """Commit entries with the sequences from `first` on; those with True are inline.

        Raises WalFailure and WalLost.
        """
        rows = [
            NewRow(one.size_bytes, one.index(), b"".join(one.body) if is_inline else None)
            for one, is_inline in entries
        ]
        try:
            await self._line.touch(
                lambda connection: commit_entries(connection, self._session, first, rows)
            )
        except SessionClosed as error:
            raise WalLost(str(error)) from error
        except MetadataError as error:
            raise WalFailure(str(error)) from error
