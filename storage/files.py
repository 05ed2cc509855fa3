"""The file system as storage sees it: the one module that talks to the operating system.

Everything else takes a FileSystem, so that a crash can be a test parameter. An open file has
no close(): its descriptor goes when the last reference does, so that a thread which still
reads a deleted segment finishes its read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from storage.errors import DirectoryInUse, DiskFailure

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

# Linux's limit on the buffers of one writev; POSIX promises 16.
_BUFFERS_PER_WRITE_MAX = 1024


class File(Protocol):
    """An open file: appended to at its end by its owner, read at any position by anyone."""

    path: Path

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

    def sync(self) -> None:
        """Return once what was written is on the disk."""


class FileSystem(Protocol):
    """What storage needs of a file system. Every operation raises DiskFailure when refused."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; with `write` it is created when it is not there."""

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory is there."""

    def is_directory(self, path: Path) -> bool:
        """Tell whether a path is a directory."""

    def size(self, path: Path) -> int:
        """Return a file's size in bytes."""

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents; nothing happens when it is there.

        It is durable once its parent is synced.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically, replacing the target."""

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens when it is not there."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it."""

    def read_bytes(self, path: Path) -> bytes:
        """Read a small file whole."""

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Write a small file whole; durable only some time later."""

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a small file so that a crash leaves the old or the new, whole and durable."""

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable: creations, renames, removals."""

    def modified_ms(self, path: Path) -> int:
        """Return a file's modification time in milliseconds since the epoch."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""

    def lock(self, path: Path) -> object:
        """Lock a file against other processes for as long as the returned value lives."""


class RealFile:
    """A file by its descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def size(self) -> int:
        return _call(self.path, lambda: os.fstat(self._fd).st_size)

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        try:
            total = sum(memoryview(buffer).nbytes for buffer in buffers)
            written = os.pwritev(self._fd, buffers[:_BUFFERS_PER_WRITE_MAX], position)
            if written < total:
                self._append_rest(position + written, b"".join(buffers)[written:])
            return total
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def _append_rest(self, position: int, rest: bytes) -> None:
        """Go on after a short write, which a nearly full disk or a signal can cause."""
        view = memoryview(rest)
        while view:
            written = os.pwrite(self._fd, view, position)
            position += written
            view = view[written:]

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            # Linux reads at most 2 GiB - 4 KiB at once, and a signal may cut a read short.
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # tmpfs and some others: always in memory
                return self.read(position, size)
            raise DiskFailure(self.path, error) from error
        if count == size:
            return data
        # Short: the rest is not in the page cache, or the file ends here.
        return None if position + count < self.size() else bytes(memoryview(data)[:count])

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise DiskFailure(self.path, error) from error


class RealFileSystem:
    """The operating system's own."""

    def open(self, path: Path, *, write: bool = False) -> RealFile:
        flags = os.O_CLOEXEC | (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)
        return RealFile(path, _call(path, lambda: os.open(path, flags, 0o644)))

    def exists(self, path: Path) -> bool:
        return _call(path, path.exists)

    def is_directory(self, path: Path) -> bool:
        return _call(path, path.is_dir)

    def size(self, path: Path) -> int:
        return _call(path, lambda: path.stat().st_size)

    def list(self, directory: Path) -> list[str]:
        names = _call(directory, lambda: os.listdir(directory))  # noqa: PTH208 (needs no paths)
        return sorted(names)

    def make_directory(self, path: Path) -> None:
        _call(path, lambda: path.mkdir(parents=True, exist_ok=True))

    def rename(self, source: Path, target: Path) -> None:
        _call(source, lambda: source.replace(target))

    def remove(self, path: Path) -> None:
        _call(path, lambda: path.unlink(missing_ok=True))

    def remove_tree(self, path: Path) -> None:
        if not path.is_dir():
            return
        for name in self.list(path):
            child = path / name
            if child.is_dir() and not child.is_symlink():
                self.remove_tree(child)
            else:
                self.remove(child)
        _call(path, path.rmdir)

    def read_bytes(self, path: Path) -> bytes:
        return _call(path, path.read_bytes)

    def write_bytes(self, path: Path, data: bytes) -> None:
        _call(path, lambda: path.write_bytes(data))

    def write_atomically(self, path: Path, data: bytes) -> None:
        # The order is the guarantee: data on disk before the name, the name before we return.
        temporary = path.with_name(path.name + ".tmp")
        self.write_bytes(temporary, data)
        self.open(temporary, write=True).sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        fd = _call(path, lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            _call(path, lambda: os.fsync(fd))
        finally:
            os.close(fd)

    def modified_ms(self, path: Path) -> int:
        return _call(path, lambda: path.stat().st_mtime_ns) // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        _call(path, lambda: os.utime(path, ns=(modified_ms * 1_000_000,) * 2))

    def lock(self, path: Path) -> object:
        file = self.open(path, write=True)
        try:
            fcntl.flock(file._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryInUse(
                f"{path.parent} is in use by another process (it holds {path}): "
                "stop that process or choose another log.dirs"
            ) from error
        return file


def raise_open_files_limit() -> int:
    """Raise the soft limit on open files to the hard one; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _call(path: Path, operation: Callable[[], T]) -> T:
    try:
        return operation()
    except OSError as error:
        raise DiskFailure(path, error) from error
