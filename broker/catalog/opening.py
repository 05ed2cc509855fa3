"""Opens the catalog of a broker."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.store import Metadata


async def open_catalog(
    url: str, new_cluster_id: Callable[[], str], new_id: Callable[[], str]
) -> tuple[CatalogStore, bool]:
    """Open a catalog, and begin a cluster in a new one. Raises MetadataError.

    Returns whether it is new.
    """
    catalog = CatalogStore(lambda: open_engine(url), new_id)
    try:
        is_new = await catalog.prepare(lambda: Metadata(new_cluster_id(), (), {}))
    except MetadataError:
        await catalog.close()
        raise
    return catalog, is_new
