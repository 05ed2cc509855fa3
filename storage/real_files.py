"""The operating system's files, behind storage/files.py: the one module that talks to it.

A file need not be open: of thousands of files, those not used lately give up their descriptors,
and are opened again when they are used.

1. A descriptor is closed with the last reference to it, so never during a system call.
2. A file that was renamed is not opened by its old name: both happen under one lock.
3. A removed file does not come back: only the first open of a file may create it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from odradek.storage.errors import CorruptFile, DirectoryInUse, DiskFailure
from odradek.storage.files import READ_BYTES_MAX, Buffer, LocalFiles

T = TypeVar("T")

# Linux's limit on the buffers of one writev; POSIX promises 16.
_BUFFERS_PER_WRITE_MAX = 1024
_PUNCH_HOLE = 0x01 | 0x02  # and keep the size; from Linux's falloc.h
# The number of descriptors that all files may have together, by default.
OPEN_FILES_MAX = 4096


class _Descriptor:
    """An open file descriptor, closed with the last reference to it.

    A user of the number keeps a reference until the system call has returned: the pool may drop
    its own at any time, and the number may then belong to another file at once.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)


class _Pool:
    """The descriptors of the files that were used last; threads share it.

    It gives up descriptors by the clock algorithm: the file that was opened first is closed,
    unless it was used since the hand last passed it.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        # Changed only with the lock held.
        self._open: dict[weakref.ref[RealFile], None] = {}
        # References to dropped files. Any thread may append at any time; `deque.append` is atomic.
        self._forgotten: deque[weakref.ref[RealFile]] = deque()
        # Held while a file is opened or renamed, so that it is never opened by a name that it
        # no longer has. Reentrant, so that a finalizer cannot block its own thread.
        self.lock = threading.RLock()

    def open(self, file: RealFile, flags: int) -> _Descriptor:
        """Open a file, unless it is open; raises OSError."""
        with self.lock:
            descriptor = file.descriptor
            if descriptor is None:
                descriptor = _open_regular(file.path, flags)
                file.descriptor = descriptor
                self._open[weakref.ref(file, self._forgotten.append)] = None
                self._shrink()
            return descriptor

    def close(self) -> None:
        """Close all descriptors."""
        with self.lock:
            for reference in list(self._open):
                file = reference()
                if file is not None:
                    file.descriptor = None
            self._open.clear()

    def _shrink(self) -> None:
        while self._forgotten:
            self._open.pop(self._forgotten.popleft(), None)
        while len(self._open) > self._files_max:
            reference = next(iter(self._open))
            del self._open[reference]
            file = reference()
            if file is None:
                continue
            if file.is_used:
                file.is_used = False
                self._open[reference] = None
            else:
                file.descriptor = None


class RealFile:
    """A file: its name, and its descriptor while it has one."""

    __slots__ = ("__weakref__", "_is_writable", "_pool", "descriptor", "is_used", "path")
    is_fixed = False

    def __init__(self, path: Path, pool: _Pool, *, write: bool) -> None:
        self.path = path
        self.descriptor: _Descriptor | None = None
        self.is_used = True
        self._pool, self._is_writable = pool, write
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        _call(path, lambda: pool.open(self, flags))

    def _opened(self) -> _Descriptor:
        """Return the descriptor, which stays open at least as long as the caller has it."""
        self.is_used = True
        opened = self.descriptor
        if opened is None:
            # Without O_CREAT: a removed file must not come back.
            opened = self._pool.open(self, os.O_RDWR if self._is_writable else os.O_RDONLY)
        return opened

    def size(self) -> int:
        try:
            opened = self._opened()
            return os.fstat(opened.fd).st_size
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        try:
            opened = self._opened()
            total = sum(map(len, buffers))
            written = os.pwritev(opened.fd, buffers[:_BUFFERS_PER_WRITE_MAX], position)
            if written < total:
                rest = b"".join(buffers)[written:]
                _write_rest(opened.fd, position + written, rest)
            return total
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def read(self, position: int, size: int) -> bytes:
        try:
            return _read(self._opened(), position, size)
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        try:
            return _read_cached(self._opened(), position, size)
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            opened = self._opened()
            os.ftruncate(opened.fd, size)
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def free(self, position: int, size: int) -> None:
        _call(self.path, lambda: _punch_hole(self._opened(), position, size))

    def sync(self) -> None:
        try:
            opened = self._opened()
            os.fdatasync(opened.fd)
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def opened(self) -> _Descriptor:
        try:
            return self._opened()
        except OSError as error:
            raise DiskFailure(self.path, error) from error

    def rename(self, target: Path) -> None:
        with self._pool.lock:
            _call(self.path, lambda: self.path.replace(target))
            self.path = target

    def follow(self, path: Path) -> None:
        self.path = path

    def hold(self) -> RealFile:
        held = RealFile.__new__(RealFile)
        held.path, held.is_used = self.path, True
        held._pool, held._is_writable = self._pool, self._is_writable
        held.descriptor = self.opened()
        return held


class RealFileSystem(LocalFiles):
    """The file system of the operating system."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self._pool = _Pool(open_files_max)

    def close(self) -> None:
        """Close the files that are open; a file that is used again is opened again."""
        self._pool.close()

    def open(self, path: Path, *, write: bool = False) -> RealFile:
        return RealFile(path, self._pool, write=write)

    def exists(self, path: Path) -> bool:
        return _call(path, path.exists)

    def is_directory(self, path: Path) -> bool:
        return _call(path, path.is_dir)

    def is_regular(self, path: Path) -> bool:
        return _call(path, lambda: stat.S_ISREG(path.lstat().st_mode))

    def is_link(self, path: Path) -> bool:
        return _call(path, path.is_symlink)

    def size(self, path: Path) -> int:
        return _call(path, lambda: path.stat().st_size)

    def list(self, directory: Path) -> list[str]:
        names = _call(directory, lambda: os.listdir(directory))  # noqa: PTH208 (needs no paths)
        return sorted(names)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        mode = 0o700 if is_private else 0o777
        _call(path, lambda: path.mkdir(mode, parents=True, exist_ok=True))

    def rename(self, source: Path, target: Path) -> None:
        _call(source, lambda: source.replace(target))

    def remove(self, path: Path) -> None:
        _call(path, lambda: path.unlink(missing_ok=True))

    def remove_tree(self, path: Path) -> None:
        if path.is_symlink():  # its target is not the broker's
            return self.remove(path)
        if not path.is_dir():
            return
        for name in self.list(path):
            child = path / name
            if child.is_dir() and not child.is_symlink():
                self.remove_tree(child)
            else:
                self.remove(child)
        _call(path, path.rmdir)

    def read_bytes(self, path: Path, size_max: int = READ_BYTES_MAX) -> bytes:
        return _call(path, lambda: _read_whole(path, size_max))

    def write_bytes(self, path: Path, data: bytes) -> None:
        _call(path, lambda: path.write_bytes(data))

    def write_private(self, path: Path, data: bytes) -> None:
        # Created under another name: a process that has the former file open sees nothing.
        temporary = path.with_name(path.name + ".tmp")
        self._create_anew(temporary, data, 0o600)
        self.rename(temporary, path)

    def _create_anew(self, temporary: Path, data: Buffer, mode: int) -> None:
        # A file of that name is removed and never followed: a link could lead anywhere.
        def write() -> None:
            temporary.unlink(missing_ok=True)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                _write_rest(fd, 0, data)
            finally:
                os.close(fd)

        _call(temporary, write)

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        # The order is the guarantee: data on disk before the name, the name before the return.
        temporary = path.with_name(path.name + ".tmp")
        self._create_anew(temporary, data, 0o600 if is_private else 0o666)
        self.open(temporary, write=True).sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        fd = _call(path, lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            _call(path, lambda: os.fsync(fd))
        finally:
            os.close(fd)

    def make_private(self, path: Path) -> int | None:
        mode = stat.S_IMODE(_call(path, path.stat).st_mode)
        if not mode & 0o077:
            return None
        _call(path, lambda: path.chmod(mode & 0o700))
        return mode

    def modified_ms(self, path: Path) -> int:
        return _call(path, lambda: path.stat().st_mtime_ns) // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        _call(path, lambda: os.utime(path, ns=(modified_ms * 1_000_000,) * 2))

    def space(self, path: Path) -> tuple[int, int]:
        found = _call(path, lambda: os.statvfs(path))
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: Path) -> object:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        held = _Descriptor(_call(path, lambda: os.open(path, flags, 0o644)))
        # flock() also keeps out a second broker of the same process. A JVM locks by lockf(), and
        # Kafka must not run on the same directory.
        for take in (fcntl.flock, fcntl.lockf):
            try:
                take(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise DiskFailure(path, error) from error
                raise DirectoryInUse(
                    f"{path.parent} is in use by another process (it holds {path}): "
                    "stop that process or choose another log.dirs"
                ) from error
        return held


def _open_regular(path: Path, flags: int) -> _Descriptor:
    """Open a regular file; raises OSError for any other kind.

    Without O_NONBLOCK a FIFO in a log directory would block its opener forever. The flag makes
    no difference to a regular file.
    """
    opened = _Descriptor(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644))
    if not stat.S_ISREG(os.stat(opened.fd).st_mode):  # noqa: PTH116 (a descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return opened


def _read_whole(path: Path, size_max: int) -> bytes:
    opened = _open_regular(path, os.O_RDONLY)
    size = os.fstat(opened.fd).st_size
    if size > size_max:
        raise CorruptFile(path, size_max, f"{size} bytes, where at most {size_max} are read")
    return _read(opened, 0, size)


def _write_rest(fd: int, position: int, rest: Buffer) -> None:
    """Continue after a short write, which a nearly full disk or a signal can cause."""
    view = memoryview(rest)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]


def _punch_hole(opened: _Descriptor, position: int, size: int) -> None:
    import ctypes  # only a broker with shared topics needs it

    fallocate, number = ctypes.CDLL(None, use_errno=True).fallocate, ctypes.c_int64
    if fallocate(opened.fd, _PUNCH_HOLE, number(position), number(size)) != 0:
        code = ctypes.get_errno()
        remedy = "; use ext4, XFS, Btrfs or tmpfs" if code == errno.EOPNOTSUPP else ""
        raise OSError(code, os.strerror(code) + remedy)


def _read(opened: _Descriptor, position: int, size: int) -> bytes:
    data = os.pread(opened.fd, size, position)
    # Linux reads at most 2 GiB - 4 KiB at once, and a signal may cut a read short.
    while len(data) < size:
        more = os.pread(opened.fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _read_cached(opened: _Descriptor, position: int, size: int) -> bytes | bytearray | None:
    data = bytearray(size)
    try:
        count = os.preadv(opened.fd, [data], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # tmpfs and some others: always in memory
            return _read(opened, position, size)
        raise
    if count == size:
        return data
    # Short: the rest is not in the page cache, or the file ends here.
    is_short = position + count < os.fstat(opened.fd).st_size
    return None if is_short else bytes(memoryview(data)[:count])


def _call(path: Path, operation: Callable[[], T]) -> T:
    try:
        return operation()
    except OSError as error:
        raise DiskFailure(path, error) from error
