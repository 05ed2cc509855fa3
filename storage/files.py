"""The file system as storage sees it: the operations of files, without the operating system.

All modules take a FileSystem, so that a crash can be a test parameter; storage/real_files.py has
that of the operating system. A file has no close(): its descriptor is closed with the last
reference to it. A reader of a file that may be deleted meanwhile calls hold() first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# An index names positions in up to 2 GiB of log, and takes far less; no other file that is read
# whole is as large.
READ_BYTES_MAX = 1 << 30


class Opened(Protocol):
    """A file's descriptor, open at least as long as a reference to this exists."""

    fd: int


class File(Protocol):
    """An open file: appended to at its end by its owner, read at any position by anyone."""

    path: Path

    @property
    def is_fixed(self) -> bool:
        """Whether the file is never written again, since it is in the object store."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all the buffers at a position, one after the other; return their size."""

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes at a position; fewer at the file's end."""

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """Read as read() does, or return None when that would wait for the disk."""

    def truncate(self, size: int) -> None:
        """Cut the file, or fill it up with zeros, to a size."""

    def free(self, position: int, size: int) -> None:
        """Free the space of a range, whose bytes are zeros then; the file's size stays."""

    def sync(self) -> None:
        """Return once all written bytes are on the disk."""

    def opened(self) -> Opened | None:
        """Return the descriptor, for a caller that syncs by it; None where only sync() works."""

    def rename(self, target: Path) -> None:
        """Rename the file, replacing a file of that name; readers are not disturbed."""

    def follow(self, path: Path) -> None:
        """Note that the directory was renamed."""

    def hold(self) -> File:
        """Return the file with its descriptor: readable even after it is deleted."""


class FileSystem(Protocol):
    """The file operations of storage. Each raises DiskFailure when the system refuses it."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; with `write` it is created when it does not exist."""

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory exists."""

    def is_directory(self, path: Path) -> bool:
        """Return whether a path is a directory."""

    def is_regular(self, path: Path) -> bool:
        """Return whether a path is a regular file, not a link to one."""

    def is_link(self, path: Path) -> bool:
        """Return whether a path is a symbolic link."""

    def size(self, path: Path) -> int:
        """Return a file's size in bytes."""

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        """Create a directory and its parents; does nothing when it exists.

        It is durable once its parent is synced. Only the broker's own user may use a private one.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically, replacing the target."""

    def remove(self, path: Path) -> None:
        """Remove a file; does nothing when it does not exist."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its contents."""

    def read_bytes(self, path: Path, size_max: int = READ_BYTES_MAX) -> bytes:
        """Read a small file whole; raises CorruptFile for one that is larger."""

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Write a small file whole, without making it durable."""

    def write_private(self, path: Path, data: bytes) -> None:
        """Write a small file that only the broker's own user may read."""

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        """Replace a small file so that a crash leaves the old or the new, whole and durable.

        Only the broker's own user may read a private file.
        """

    def make_private(self, path: Path) -> int | None:
        """Remove other users' rights to a file; return its former mode if that was wider."""

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable: creations, renames, removals."""

    def modified_ms(self, path: Path) -> int:
        """Return a file's modification time in milliseconds since the epoch."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""

    def keeping(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """Return a context in which files are read twice or more, in this order.

        Bytes that come from elsewhere stay on this machine meanwhile.
        """

    def space(self, path: Path) -> tuple[int, int]:
        """Return the size of a path's volume and the space available on it, in bytes."""

    def lock(self, path: Path) -> object:
        """Lock a file against other processes for as long as the returned value lives."""


class LocalFiles:
    """The part of a FileSystem whose files are all on this machine."""

    def keeping(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()
