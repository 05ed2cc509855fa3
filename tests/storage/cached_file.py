"""A file in a bucket behind a cache of small blocks, and a consumer that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.store import ObjectStore
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.remote import contents, upload
from tests.support.object_store import MemoryStore

BLOCK = 16
PLENTY = 1 << 20
PATH = Path("/file.log")


@contextmanager
def cached(
    size: int,
    bytes_max: int = PLENTY,
    *,
    memory_bytes_max: int = 0,
    of: MemoryStore | None = None,
    through: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> Iterator[tuple[CachedFiles, bytes]]:
    """A file of some size in a bucket, which is read through another store, and its bytes."""
    data = contents(size)
    fs = CachedFiles(
        CrashFileSystem(), bytes_max, memory_bytes_max=memory_bytes_max, block_bytes=BLOCK
    )
    remote = upload(of or MemoryStore(), "pack", data)
    fs.add_remote(PATH, replace(remote, store=through(remote.store)))
    yield fs, data
    fs.close()


def read_on(fs: CachedFiles, path: Path, position: int, size: int) -> bytes:
    """Read as a consumer's fetch does."""
    held = fs.open(path).hold()  # each fetch holds the file
    return bytes(held.read_cached(position, size) or held.read(position, size))
