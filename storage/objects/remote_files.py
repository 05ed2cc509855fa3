"""Files that are ranges of objects: their places, which of their blocks are local, one request.

The local copy of a remote file is a sparse file: each block is there, as in the object, or is a
hole. storage/objects/block_cache.py fetches blocks and drops them.
"""

from __future__ import annotations

from array import array
from concurrent.futures import Future
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.storage.errors import CorruptFile, StorageError, StoreFailure
from odradek.storage.files import File
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
)

NOTHING = memoryview(b"")
# No block is fetched after so many bytes.
_NEVER = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """The place of a file in a bucket, its CRC-32C and the time when it was last written."""

    store: ObjectStore
    key: str
    position: int  # in the object
    size_bytes: int
    crc: int | None  # None if it is not known
    modified_ms: int

    def read(self, path: Path, position: int, size: int) -> memoryview:
        """Fetch bytes by one request; `path` is the file's name in errors.

        The CRC is checked if these are all of the file's. Raises CorruptFile for a damaged or
        missing object, StoreFailure if the store does not serve it.
        """
        try:
            found = self.store.read_range(self.key, self.position + position, size)
        except (ObjectMissing, ObjectDamaged) as error:
            cause = f"object {self.key} cannot be read: {error}"
            raise CorruptFile(path, position, cause) from error
        except ObjectStoreError as error:
            raise StoreFailure(path, self.key, error) from error
        if size == self.size_bytes and self.crc is not None and self.crc != crc32c(found):
            raise CorruptFile(path, 0, f"object {self.key} has another CRC there")
        return memoryview(found)


class Claim(Future[memoryview]):
    """Blocks that one thread fetches or drops; the result is their bytes, or NOTHING.

    With NOTHING, readers look again.
    """

    def __init__(self, first: int, end: int) -> None:
        super().__init__()
        self.first, self.end = first, end


class Fetched:
    """The blocks of one request, in memory."""

    __slots__ = ("data", "file", "first", "unread")

    def __init__(self, file: BlockFile, first: int, data: memoryview, unread: set[int]) -> None:
        """`unread` are the blocks that nobody has begun to read."""
        self.file, self.first, self.data, self.unread = file, first, data, unread


class BlockFile:
    """A file that is remote or may become so, and the state of its local copy."""

    # Of a remote file, for each block: whether it is in the copy, whether it was read lately, how
    # often it was dropped, and the sum of all fetched bytes when it was fetched last.
    present: bytearray
    used: bytearray
    drops: array[int]
    fetched: array[int]
    # By each block that is in memory, the request that fetched it.
    passing: dict[int, Fetched]
    claims: dict[int, Claim]
    # The errors of fetched blocks, and the clock's time until which they are shown.
    failures: dict[int, tuple[StorageError, float]]
    # By the block that a sequential reader reads next: the end and the size of its read-ahead.
    streams: dict[int, tuple[int, int]]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remote: RemoteFile | None = None  # set once
        self.local: File | None = None  # the copy, once there is one
        self.is_removed = False
        # A reader that keeps its files reads them more than once, one after the other: their
        # blocks go to the disk when they are fetched first.
        self.is_kept = False
        self.follower: BlockFile | None = None

    @property
    def size_bytes(self) -> int:
        """The size of a remote file."""
        assert self.remote is not None
        return self.remote.size_bytes

    @property
    def block_count(self) -> int:
        """The number of blocks of a remote file."""
        return len(self.present)

    def has(self, block: int) -> bool:
        """Return whether a block need not be fetched."""
        return bool(self.present[block]) or block in self.passing

    def note_fetches(self, first: int, end: int) -> array[int]:
        """Return when blocks were fetched last; a time that none has for those that are here."""
        return array(
            "Q", (_NEVER if self.has(one) else self.fetched[one] for one in range(first, end))
        )

    def make_remote(self, remote: RemoteFile, block_bytes: int, *, is_present: bool) -> None:
        """Give the file its place and its blocks, all or none of which are present."""
        count = -(-remote.size_bytes // block_bytes)
        self.present, self.used = bytearray([is_present]) * count, bytearray(count)
        self.drops, self.fetched = array("L", [0]) * count, array("Q", [0]) * count
        self.passing, self.claims, self.failures, self.streams = {}, {}, {}, {}
        self.remote = remote  # at last: readers take no lock
