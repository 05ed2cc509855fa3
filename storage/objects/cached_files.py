"""A file system some of whose files are in a bucket, with copies of their blocks on the disk.

    fs.add_remote(path, remote)     a file of the bucket gets a name here
    fs.adopt(path, remote)          a local file is in the bucket now: its blocks may be dropped

All other files are those of the file system below. A remote file is read like any other, is
renamed and removed like any other, and is never written.

No file is synced: all that was acknowledged is in the bucket or in the WAL, and no file of a cache
is used after its process has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from weakref import WeakValueDictionary

from odradek.storage.errors import CorruptFile
from odradek.storage.files import READ_BYTES_MAX, Buffer, File, FileSystem, Opened
from odradek.storage.objects.block_cache import BlockCache, CacheCounters
from odradek.storage.objects.remote_files import BlockFile, RemoteFile

# A consumer's fetch has 1 MiB of a partition by default. A request for less takes nearly as long.
BLOCK_BYTES = 1 << 20


class CachedFile:
    """A storage.files.File of CachedFiles; it may become a remote one while it is open."""

    def __init__(
        self, files: CachedFiles, blocks: BlockCache, file: BlockFile, local: File | None
    ) -> None:
        """`local` is None for a remote file, unless its copy is held."""
        self.path = file.path
        self._files, self._blocks, self._file, self._local = files, blocks, file, local

    @property
    def is_fixed(self) -> bool:
        return self._file.remote is not None

    def size(self) -> int:
        remote = self._file.remote
        return remote.size_bytes if remote is not None else self._own().size()

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        return self._writable().append(position, buffers)

    def read(self, position: int, size: int) -> bytes:
        file = self._file
        if file.remote is None and self._local is not None:
            found = self._local.read(position, size)
            if file.remote is None:  # else a block may have been dropped before it was read
                return found
        return self._blocks.read(file, self._local, position, size)

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        file = self._file
        if file.remote is None and self._local is not None:
            found = self._local.read_cached(position, size)
            if file.remote is None:
                return found
        return self._blocks.read_cached(file, self._local, position, size)

    def truncate(self, size: int) -> None:
        self._writable().truncate(size)

    def free(self, position: int, size: int) -> None:
        self._writable().free(position, size)

    def sync(self) -> None:
        """Do nothing."""

    def opened(self) -> Opened | None:
        return None if self._file.remote is not None else self._own().opened()

    def rename(self, target: Path) -> None:
        self._files.rename_opened(self.path, target, self._local)
        self.path = target

    def follow(self, path: Path) -> None:
        self.path = path
        if self._local is not None:
            self._local.follow(path)

    def hold(self) -> CachedFile:
        local = self._local or self._file.local
        held = None if local is None else local.hold()
        return CachedFile(self._files, self._blocks, self._file, held)

    def _own(self) -> File:
        assert self._local is not None, "it was opened as a local file"
        return self._local

    def _writable(self) -> File:
        if self._file.remote is not None:
            raise _never_written(self.path)
        return self._own()


class CachedFiles:
    """A storage.files.FileSystem with files of a bucket; threads share it.

    The event loop never waits for the bucket, nor for a lock of a thread that does: in the thread
    `loop_thread`, a read that would wait raises NotCached. The blocks on the disk have at most
    `bytes_max` bytes, but for the space of removed files that readers hold, those in memory
    `memory_bytes_max`. Each must have room for some requests of 4 blocks: blocks for which it has
    none are not kept.
    """

    def __init__(
        self,
        fs: FileSystem,
        bytes_max: int,
        *,
        memory_bytes_max: int = 0,
        block_bytes: int = BLOCK_BYTES,
        loop_thread: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fs, self._bytes_max, self._block_bytes = fs, bytes_max, block_bytes
        self._blocks = BlockCache(
            self._create, bytes_max, memory_bytes_max, block_bytes, loop_thread, clock
        )
        self._lock: threading.RLock = self._blocks.lock
        # The open files and the remote ones, by their directories and names.
        self._directories: dict[Path, WeakValueDictionary[str, BlockFile]] = {}
        self._remote: set[BlockFile] = set()

    @property
    def counters(self) -> CacheCounters:
        """The sums since the start."""
        return self._blocks.counters

    @property
    def cached_bytes(self) -> int:
        """The size of all blocks on the disk."""
        return self._blocks.size_bytes

    @property
    def memory_bytes(self) -> int:
        """The size of all blocks in memory."""
        return self._blocks.memory_bytes

    def close(self) -> None:
        """Wait for the requests of the read-ahead; files can be read all the same."""
        self._blocks.close()

    def add_remote(self, path: Path, remote: RemoteFile) -> None:
        """Give a file of the bucket a name.

        A local file of the name counts for nothing, and is removed when the first block is
        fetched; its bytes may be those of any moment before a crash.
        """
        with self._lock:
            self._forget(path)
            file = self._enter(BlockFile(path))
            file.make_remote(remote, self._block_bytes, is_present=False)
            self._remote.add(file)

    def adopt(self, path: Path, remote: RemoteFile) -> None:
        """Let the blocks of a local file be dropped from now on, since they are in the bucket.

        Files that are open stay so, and must not be written any more. It waits for the disk.
        Raises CorruptFile unless the sizes are equal.
        """
        size = self._fs.size(path)
        if size != remote.size_bytes:
            cause = f"it has {size} bytes, and object {remote.key} {remote.size_bytes} for it"
            raise CorruptFile(path, min(size, remote.size_bytes), cause)
        with self._lock:
            file = self._find(path) or self._enter(BlockFile(path))
            if file.remote is not None:
                raise _never_written(path)
            local = self._fs.open(path, write=True)
            dropped = self._blocks.adopt(file, local, remote)
            self._remote.add(file)
        self._blocks.punch(dropped)

    # --- files that may be remote ---------------------------------------------------------

    def open(self, path: Path, *, write: bool = False) -> CachedFile:
        with self._lock:
            file = self._find(path) or self._enter(BlockFile(path))
        local = None if file.remote is not None else self._fs.open(path, write=write)
        return CachedFile(self, self._blocks, file, local)

    def exists(self, path: Path) -> bool:
        return self._remote_at(path) is not None or self._fs.exists(path)

    def is_regular(self, path: Path) -> bool:
        return self._remote_at(path) is not None or self._fs.is_regular(path)

    def size(self, path: Path) -> int:
        remote = self._remote_at(path)
        return self._fs.size(path) if remote is None else remote.size_bytes

    def list(self, directory: Path) -> list[str]:
        with self._lock:
            files = list(self._directories.get(directory, {}).values())
        remote = {file.path.name for file in files if file.remote is not None}
        return sorted(remote.union(self._fs.list(directory)))

    def rename(self, source: Path, target: Path) -> None:
        if source in self._directories:
            self._rename_directory(source, target)
        else:
            self.rename_opened(source, target, None)

    def rename_opened(self, source: Path, target: Path, local: File | None) -> None:
        """Rename a file; `local` is the open file, if it is one."""
        with self._lock:
            file = self._find(source)
            with self._replacing(target):
                copy = None if file is None else file.local
                if local is not None:
                    local.rename(target)
                    if copy is not None:
                        copy.follow(target)
                elif copy is not None:
                    copy.rename(target)
                elif file is None or file.remote is None:
                    self._fs.rename(source, target)
                else:  # a local file that counted for nothing
                    self._fs.remove(source)
            if file is not None:
                del self._directories[source.parent][source.name]
                file.path = target
                self._enter(file)

    def remove(self, path: Path) -> None:
        with self._lock:
            self._forget(path)
        self._fs.remove(path)

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            for name in list(self._directories.get(path, ())):
                self._forget(path / name)
            self._directories.pop(path, None)
        self._fs.remove_tree(path)

    def read_bytes(self, path: Path, size_max: int = READ_BYTES_MAX) -> bytes:
        if self._remote_at(path) is None:
            found = self._fs.read_bytes(path, size_max)
            if self._remote_at(path) is None:  # else a block may have been dropped meanwhile
                return found
        file = self.open(path)
        size = file.size()
        if size > size_max:
            raise CorruptFile(path, size_max, f"{size} bytes, where at most {size_max} are read")
        return file.read(0, size)

    def write_bytes(self, path: Path, data: bytes) -> None:
        self._check_local(path)
        self._fs.write_bytes(path, data)

    def write_private(self, path: Path, data: bytes) -> None:
        self._check_local(path)
        self._fs.write_private(path, data)

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        write = self._fs.write_private if is_private else self._fs.write_bytes
        new = path.with_name(path.name + ".tmp")
        write(new, bytes(data))
        # It makes a new file of that name: so does an index that is rebuilt from its log.
        with self._replacing(path):
            self._fs.rename(new, path)

    def modified_ms(self, path: Path) -> int:
        remote = self._remote_at(path)
        return self._fs.modified_ms(path) if remote is None else remote.modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._check_local(path)
        self._fs.set_modified_ms(path, modified_ms)

    @contextmanager
    def keeping(self, paths: Sequence[Path]) -> Iterator[None]:
        """Keep blocks on the disk once fetched, if half of the budget has room for all of them."""
        with self._lock:
            found = [one for one in map(self._find, paths) if one and one.remote is not None]
            fits = sum(one.size_bytes for one in found) <= self._bytes_max // 2
            kept = found if fits else []
            for one, follower in zip_longest(kept, kept[1:]):
                one.is_kept, one.follower = True, follower
        try:
            yield
        finally:
            for one in kept:
                one.is_kept, one.follower = False, None

    # --- all else is below ----------------------------------------------------------------

    def is_directory(self, path: Path) -> bool:
        return self._fs.is_directory(path)

    def is_link(self, path: Path) -> bool:
        return self._fs.is_link(path)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        self._fs.make_directory(path, is_private=is_private)

    def make_private(self, path: Path) -> int | None:
        return self._fs.make_private(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""

    def space(self, path: Path) -> tuple[int, int]:
        return self._fs.space(path)

    def lock(self, path: Path) -> object:
        return self._fs.lock(path)

    # --- names ----------------------------------------------------------------------------

    def _create(self, path: Path) -> File:
        self._fs.remove(path)
        return self._fs.open(path, write=True)

    def _find(self, path: Path) -> BlockFile | None:
        names = self._directories.get(path.parent)
        return None if names is None else names.get(path.name)

    def _remote_at(self, path: Path) -> RemoteFile | None:
        file = self._find(path)
        return None if file is None else file.remote

    def _check_local(self, path: Path) -> None:
        if self._remote_at(path) is not None:
            raise _never_written(path)

    def _enter(self, file: BlockFile) -> BlockFile:
        names = self._directories.setdefault(file.path.parent, WeakValueDictionary())
        names[file.path.name] = file
        return file

    def _forget(self, path: Path) -> None:
        """Forget a name, whose file is removed or replaced; with the lock held."""
        file = self._find(path)
        if file is None:
            return
        del self._directories[path.parent][path.name]
        if file.remote is not None:
            self._remote.discard(file)
            self._blocks.forget(file)

    @contextmanager
    def _replacing(self, path: Path) -> Iterator[None]:
        """Forget the file that another one replaces here, which its readers may go on to read."""
        with self._lock:
            replaced = self._find(path)
            if replaced is not None and replaced.local is not None:
                replaced.local = replaced.local.hold()
            yield
            self._forget(path)

    def _rename_directory(self, source: Path, target: Path) -> None:
        with self._lock:
            files = list(self._directories[source].values())
            # Held meanwhile: no thread opens a copy by a name that it has not yet, or no longer.
            copies = [(file, file.local) for file in files if file.local is not None]
            for file, copy in copies:
                file.local = copy.hold()
            try:
                self._fs.rename(source, target)
                self._directories[target] = self._directories.pop(source)
                for file in files:
                    file.path = target / file.path.name
            finally:
                for file, copy in copies:
                    copy.follow(file.path)
                    file.local = copy


def _never_written(path: Path) -> RuntimeError:
    return RuntimeError(f"{path} is in the object store, and is never written: this is a bug")
