"""The operating system's file system, some operations of which are refused on demand.

It refuses as a failing disk does: what was written stays in the page cache and can be read, a
sync() that fails has failed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from odradek.storage.errors import DiskFailure
from odradek.storage.files import Buffer, File
from odradek.storage.real_files import RealFileSystem

IO_ERROR = OSError(errno.EIO, "Input/output error")
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")

# Says with which error, if any, an operation is refused: its kind and its path.
Refuse = Callable[[str, Path], OSError | None]


class FaultyFileSystem:
    """A storage.files.FileSystem; tests set `refuse`."""

    def __init__(self) -> None:
        self._real = RealFileSystem()
        self.refuse: Refuse = lambda kind, path: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def check(self, kind: str, path: Path) -> None:
        """Raise the error of an operation that is refused."""
        error = self.refuse(kind, path)
        if error is not None:
            raise DiskFailure(path, error)

    def open(self, path: Path, *, write: bool = False) -> FaultyFile:
        self.check("open", path)
        return FaultyFile(self, self._real.open(path, write=write))

    def list(self, directory: Path) -> list[str]:
        self.check("list", directory)
        return self._real.list(directory)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        self.check("make_directory", path)
        self._real.make_directory(path, is_private=is_private)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory", path)
        self._real.sync_directory(path)

    def write_bytes(self, path: Path, data: bytes) -> None:
        self.check("write", path)
        self._real.write_bytes(path, data)

    def write_private(self, path: Path, data: bytes) -> None:
        self.check("write", path)
        self._real.write_private(path, data)

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        self.check("write", path)
        self.check("sync", path)
        self._real.write_atomically(path, data, is_private=is_private)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", source)
        self._real.rename(source, target)


class FaultyFile:
    """A storage.files.File of a FaultyFileSystem."""

    def __init__(self, fs: FaultyFileSystem, real: File) -> None:
        self._fs, self._real = fs, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._fs.check("write", self._real.path)
        return self._real.append(position, buffers)

    def read(self, position: int, size: int) -> bytes:
        self._fs.check("read", self._real.path)
        return self._real.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        self._fs.check("read", self._real.path)
        return self._real.read_cached(position, size)

    def sync(self) -> None:
        self._fs.check("sync", self._real.path)
        self._real.sync()

    def opened(self) -> None:
        """Let nobody sync it but by sync()."""

    def hold(self) -> FaultyFile:
        return FaultyFile(self._fs, self._real.hold())
