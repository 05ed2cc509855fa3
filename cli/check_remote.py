"""Reads the catalog and the bucket as a start would use them, and changes neither."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from odradek.broker.catalog.engines import CatalogAway, Engine, open_engine
from odradek.broker.catalog.moving_in import check_origin, has_own
from odradek.broker.catalog.passages import Origin, refuse_exported
from odradek.broker.catalog.schema import MIGRATIONS, read_version
from odradek.broker.catalog.sessions import refuse_used_id
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.metadata.images import DATABASE_NAME
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import Metadata, Resource
from odradek.broker.shared.bucket import refused_bucket, store_options
from odradek.cli.finding import NO_START, OK, PROBLEM, Finding
from odradek.cli.rehearsal_files import RehearsalFiles
from odradek.config.object_store import ObjectStoreConfig
from odradek.dataclass import dataclass
from odradek.storage.errors import DiskFailure
from odradek.storage.meta_properties import META, read_properties
from odradek.storage.objects.opening import open_store
from odradek.storage.objects.store import (
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    StoreRefused,
)

# A start repeats its requests for longer; a person waits for this answer.
_TIMEOUT_MS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Seen:
    """The metadata that a start finds, or begins."""

    cluster_id: str
    configs: Mapping[Resource, Mapping[str, str]]
    is_new: bool


def see_files(fs: RehearsalFiles, paths: Sequence[Path], cluster_id: str) -> Seen:
    """Read the metadata in log directories; `cluster_id` is that of new ones.

    Raises MetadataError.
    """
    metadata, _, is_new = _read_files(fs, paths, cluster_id)
    return Seen(metadata.cluster_id, metadata.configs, is_new)


def see_catalog(
    url: str, fs: RehearsalFiles, paths: Sequence[Path], node_id: int, cluster_id: str
) -> Seen:
    """Read a catalog; `cluster_id` is that of a new one. Raises MetadataError or StorageError."""
    meta = read_properties(fs, paths[0] / META) if fs.exists(paths[0] / META) else {}
    host = meta.get("directory.id", "")
    moved = origin = None
    if has_own(fs, paths):
        moved, generation, _ = _read_files(fs, paths, "")
        origin = Origin(host, generation)
    begun = Seen(cluster_id, {}, is_new=True)
    if moved is not None:
        begun = Seen(moved.cluster_id, moved.configs, is_new=False)
    parts = urlsplit(url)
    if parts.scheme == "sqlite" and not Path(parts.path).exists():
        _require_room(fs, Path(parts.path))
        return begun
    engine = open_engine(url, only_reads=True)

    def look(connection: Connection) -> Seen:
        return _look(engine, connection, node_id, host) or begun

    def check(connection: Connection) -> None:
        if origin is not None and CatalogStatements(connection).cluster_id() is not None:
            check_origin(connection, engine.address, origin, paths[0] / DATABASE_NAME)

    try:
        seen = engine.read(look)
        if seen is not begun:
            engine.read(check)
        return seen
    finally:
        engine.close()


def check_bucket(config: ObjectStoreConfig) -> Iterator[Finding]:
    """Yield findings on the bucket: it is read, and a folder's permissions are looked at."""
    url = config.odradek_object_store_url or ""
    timeout_ms = min(config.odradek_object_store_timeout_ms, _TIMEOUT_MS_MAX)
    options = replace(store_options(config), request_timeout_ms=timeout_ms)
    try:
        store = open_store(url, options, os.environ)
        try:
            _read(store)
            _require_writable(url)
        finally:
            store.close()
    except ObjectStoreError as error:
        yield Finding(PROBLEM, "bucket", str(refused_bucket(error)), NO_START)
    else:
        yield Finding(OK, "bucket", f"{url} can be read")


def _read_files(
    fs: RehearsalFiles, paths: Sequence[Path], cluster_id: str
) -> tuple[Metadata, int, bool]:
    store = SqliteMetadata(fs, paths, lambda: cluster_id)

    async def load() -> Metadata:
        try:
            return await store.load()
        finally:
            await store.close()

    return asyncio.run(load()), store.revision, store.is_new


def _look(engine: Engine, connection: Connection, node_id: int, host: str) -> Seen | None:
    """Return the metadata of a catalog, None for a new one."""
    version = read_version(engine, connection)
    if version == len(MIGRATIONS):  # others get their tables when a broker starts
        refuse_exported(connection, engine.address)
        refuse_used_id(connection, engine, node_id, host)
    statements = CatalogStatements(connection)
    cluster_id = statements.cluster_id() if version else None
    return None if cluster_id is None else Seen(cluster_id, statements.configs(), is_new=False)


def _require_room(fs: RehearsalFiles, path: Path) -> None:
    """Raise CatalogAway for a file that cannot be created, as its engine does."""
    try:
        fs.write_bytes(path, b"")
    except DiskFailure as error:
        reason = error.cause.strerror
        raise CatalogAway(f"the catalog {path} cannot be used: {reason}") from error


def _read(store: ObjectStore) -> None:
    key = f"probe/{uuid.uuid4().hex}"
    try:
        store.read(key)
    except ObjectMissing:
        next(iter(store.list_objects("probe/")), None)


def _require_writable(url: str) -> None:
    """Raise StoreRefused for a folder that may not be written, as a write into it does."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not os.access(unquote(parts.path), os.W_OK | os.X_OK):
        raise StoreRefused(
            f"write to {url}: EACCES; check the folder, its permissions and its space"
        )
