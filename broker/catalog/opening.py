"""Opens the catalog of a broker.

A broker that gets a catalog takes its own metadata along, if the catalog is new:

    1. the catalog begins with the metadata in the log directories, in one transaction
    2. the broker joins, and leads its partitions
    3. the files in the log directories are renamed: they would be out of date from now on

A crash before the third step repeats the second one at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import MOVED_SUFFIX, places
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import Metadata
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem

logger = logging.getLogger(__name__)

async def open_catalog(
    fs: FileSystem,
    paths: Sequence[Path],
    url: str,
    new_cluster_id: Callable[[], str],
    new_id: Callable[[], str],
) -> tuple[CatalogStore, bool, bool]:
    """Open the catalog of a broker with these log directories. Raises MetadataError.

    Returns whether it is new and empty, and whether the log directories have files with metadata,
    which is in the catalog now.
    """
    has_files = any(fs.exists(path) for path in places(paths))
    held = await _held(fs, paths) if has_files else None
    catalog = CatalogStore(lambda: open_engine(url), new_id)
    try:
        is_new = await catalog.prepare(lambda: held or Metadata(new_cluster_id(), (), {}))
    except MetadataError:
        await catalog.close()
        raise
    return catalog, is_new and held is None, has_files


def retire_files(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Rename the files of metadata that is in the catalog now."""
    for path in places(paths):
        with suppress(DiskFailure):
            if fs.exists(path):
                fs.rename(path, Path(f"{path}{MOVED_SUFFIX}"))
    logger.info("moved the metadata to the catalog, the old files are *%s", MOVED_SUFFIX)


async def _held(fs: FileSystem, paths: Sequence[Path]) -> Metadata:
    """Read the metadata in the log directories."""
    store = SqliteMetadata(fs, paths, lambda: "")
    try:
        return await store.load()
    finally:
        await store.close()
