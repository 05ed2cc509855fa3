"""The files of this machine for a rehearsal: they are read, and changes stay in memory.

A change that the system would refuse is refused here with the same error, so that code which
begins to serve log directories can run without leaving anything on the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from odradek.storage.errors import DiskFailure
from odradek.storage.files import READ_BYTES_MAX, Buffer, LocalFiles
from odradek.storage.real_files import RealFile, RealFileSystem

_CHANGE = os.W_OK | os.X_OK


class RehearsalFiles(LocalFiles):
    """A FileSystem that changes nothing; one thread uses it."""

    def __init__(self, *, has_locks: bool = False) -> None:
        """With `has_locks` the files that other processes have locked count as one's own."""
        self._real, self._has_locks = RealFileSystem(), has_locks
        # The files that a real run would have changed; None for those that it would have removed.
        self._files: dict[Path, bytes | None] = {}
        self._directories: set[Path] = set()

    def open(self, path: Path, *, write: bool = False) -> RealFile:
        """Open a real file to read it."""
        if write:
            self._require(path, path, os.R_OK | os.W_OK)
        return self._real.open(path)

    def exists(self, path: Path) -> bool:
        if path in self._directories:
            return True
        if path in self._files:
            return self._files[path] is not None
        return not self._is_gone(path) and self._real.exists(path)

    def is_directory(self, path: Path) -> bool:
        if path in self._files:
            return False
        return path in self._directories or (
            not self._is_gone(path) and self._real.is_directory(path)
        )

    def is_regular(self, path: Path) -> bool:
        if path in self._files:
            return self._files[path] is not None
        return not self._is_gone(path) and self._real.is_regular(path)

    def is_link(self, path: Path) -> bool:
        return self._is_real(path) and self._real.is_link(path)

    def size(self, path: Path) -> int:
        data = self._files.get(path)
        return self._real.size(path) if data is None else len(data)

    def list(self, directory: Path) -> list[str]:
        names = set() if directory in self._directories else set(self._real.list(directory))
        for path, data in self._files.items():
            if path.parent == directory:
                (names.discard if data is None else names.add)(path.name)
        names |= {path.name for path in self._directories if path.parent == directory}
        return sorted(names)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        if self.is_directory(path):
            return
        if self.exists(path) or self._real.is_link(path):
            raise _failure(path, errno.EEXIST)
        if not self.exists(path.parent):
            self.make_directory(path.parent)
        self._require_change(path)
        self._files.pop(path, None)
        self._directories.add(path)

    def rename(self, source: Path, target: Path) -> None:
        is_directory = self.is_directory(source)
        data = b"" if is_directory else self.read_bytes(source)
        self.remove(source)
        self._require_change(target)
        if is_directory:
            self._directories.add(target)
        else:
            self._files[target] = data

    def remove(self, path: Path) -> None:
        if self.exists(path):
            self._require_change(path)
        self._directories.discard(path)
        self._files[path] = None

    def remove_tree(self, path: Path) -> None:
        self.remove(path)

    def read_bytes(self, path: Path, size_max: int = READ_BYTES_MAX) -> bytes:
        data = self._files.get(path)
        if data is not None:
            return data
        if self._is_gone(path):
            raise _failure(path, errno.ENOENT)
        return self._real.read_bytes(path, size_max)

    def write_bytes(self, path: Path, data: bytes) -> None:
        if self._is_real(path) and self._real.exists(path):
            self._require(path, path, os.W_OK)
        else:
            self._require_change(path)
        self._files[path] = data

    def write_private(self, path: Path, data: bytes) -> None:
        self.write_atomically(path, data)

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        # A real run writes a file beside it, which takes no right to the file itself.
        self._require_change(path.with_name(path.name + ".tmp"))
        if self.is_directory(path):
            raise _failure(path, errno.EISDIR)
        self._files[path] = bytes(data)

    def make_private(self, path: Path) -> int | None:
        return None

    def sync_directory(self, path: Path) -> None:
        self._require(path, path, os.R_OK)

    def modified_ms(self, path: Path) -> int:
        return self._real.modified_ms(path)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Do nothing."""

    def space(self, path: Path) -> tuple[int, int]:
        return self._real.space(path)

    def lock(self, path: Path) -> object:
        """Take a lock for an instant."""
        if not self.exists(path):
            self._require_change(path)
            self._files[path] = b""
        elif self._is_real(path) and not self._has_locks:
            self._real.lock(path)
        return path

    def _is_real(self, path: Path) -> bool:
        return (
            path not in self._files
            and path not in self._directories
            and not self._is_gone(path)
        )

    def _is_gone(self, path: Path) -> bool:
        parents: Sequence[Path] = path.parents
        return any(self._files.get(one, b"") is None for one in (path, *parents))

    def _require_change(self, path: Path) -> None:
        """Raise DiskFailure unless names may be added to, and taken from, a file's directory."""
        self._require(path, path.parent, _CHANGE)

    def _require(self, path: Path, needed: Path, rights: int) -> None:
        if not self._is_real(needed):
            return
        if not self._real.exists(needed):
            raise _failure(path, errno.ENOENT)
        if needed != path and not self._real.is_directory(needed):
            raise _failure(path, errno.ENOTDIR)
        if not os.access(needed, rights):
            is_fixed = rights & os.W_OK and os.statvfs(needed).f_flag & os.ST_RDONLY
            raise _failure(path, errno.EROFS if is_fixed else errno.EACCES)


def _failure(path: Path, code: int) -> DiskFailure:
    return DiskFailure(path, OSError(code, os.strerror(code)))
