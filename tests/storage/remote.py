"""Files in a bucket, for tests of the cache."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from odradek.protocol.checksum import crc32c
from odradek.storage.files import FileSystem
from odradek.storage.objects.remote_files import RemoteFile
from odradek.storage.objects.store import ObjectStore
from tests.support.object_store import MemoryStore

POSITION = 37  # files of a pack lie behind others
MODIFIED_MS = 1_234


class GatedStore(MemoryStore):
    """A store whose reads wait at a gate; it notes their ranges in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        self.ranges.append((position - POSITION, size_bytes))
        self.gate.wait(60)
        return super().read_range(key, position, size_bytes)


def contents(size: int, seed: int = 0) -> bytes:
    """Return bytes no two blocks of which are equal, and none of which is a hole's."""
    return random.Random(seed).randbytes(size).replace(b"\0", b"\1")


def upload(store: ObjectStore, key: str, data: bytes) -> RemoteFile:
    """Store a file within an object, which has other bytes around it."""
    store.create(key, [bytes(POSITION), data, b"others"])
    return RemoteFile(store, key, POSITION, len(data), crc32c(data), MODIFIED_MS)


def upload_file(store: ObjectStore, fs: FileSystem, path: Path) -> RemoteFile:
    """Store a local file."""
    return upload(store, path.name, fs.read_bytes(path))
