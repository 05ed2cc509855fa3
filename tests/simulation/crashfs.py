"""A file system in memory that forgets at a crash what was not synced, or some of it.

What POSIX promises, and no more, survives for sure: a file's bytes as of its last sync(), a
directory's entries as of its last sync_directory(). Of what came later a random part is kept:

    files        the first writes and truncations, the last of them torn at any byte; or any
                 sectors of them, with zeros or what was there before where one is missing
    directories  the first changes in order, as journals keep them; or any of them, but for each
                 file in order. A rename is one change: it happened or it did not
    times        a file's modification time as of its last sync(), or a later one

An operation that is refused has not happened, but for a write, half of which has. What a sync()
that fails has covered is still to be synced; or, with `failed_sync_forgets`, it is read until
the crash but no later sync() makes it durable, as on Linux, where pages that could not be
written back count as clean from then on.

All by a seed, so that a failure can be had again. `before` hears of each operation that changes
something, just before it happens: crashing there, for each in turn, is crashing everywhere.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek.storage.errors import DirectoryInUse, DiskFailure
from odradek.storage.files import READ_BYTES_MAX, Buffer, LocalFiles
from tests.simulation.clock import SimulatedClock

SECTOR_BYTES = 512

# The position and bytes of a write, or the size of a truncation.
_Change = tuple[int, bytes] | int


@dataclass(eq=False, slots=True)
class _FileNode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list)
    modified_ms: int = 0
    modified_durable_ms: int = 0

    def apply(self, change: _Change) -> None:
        _apply(self.data, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()
        self.modified_durable_ms = self.modified_ms

    def as_it_is(self) -> _FileNode:
        ms = self.modified_ms
        return _FileNode(bytearray(self.data), bytearray(self.data), [], ms, ms)

    def after_crash(self, source: random.Random) -> _FileNode:
        if not self.pending and self.modified_ms == self.modified_durable_ms:
            data, ms = self.durable, self.modified_durable_ms
            return _FileNode(bytearray(data), bytearray(data), [], ms, ms)
        data = bytearray(self.durable)
        if source.random() < 0.5:
            kept = source.randint(0, len(self.pending))
            for change in self.pending[:kept]:
                _apply(data, change)
            torn = self.pending[kept] if kept < len(self.pending) else 0
            if not isinstance(torn, int):
                _apply(data, (torn[0], torn[1][: source.randint(0, len(torn[1]))]))
        else:
            for change in self.pending:
                for part in _sectors(change):
                    fate = source.random()
                    if fate < 0.5:
                        _apply(data, part)
                    elif fate < 0.7 and not isinstance(part, int):
                        # The file has grown, the bytes have not arrived.
                        end = part[0] + len(part[1])
                        data.extend(bytes(max(0, end - len(data))))
        ms = source.choice([self.modified_ms, self.modified_durable_ms])
        return _FileNode(data, bytearray(data), [], ms, ms)


@dataclass(eq=False, slots=True)
class _DirectoryNode:
    entries: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)


_Node = _FileNode | _DirectoryNode
# Entries that change together: the directory, the name, and what it names from then on.
_EntryChange = tuple[tuple[_DirectoryNode, str, "_Node | None"], ...]


class CrashFileSystem(LocalFiles):
    """A storage.files.FileSystem; one for each life of a machine."""

    def __init__(self, clock: SimulatedClock | None = None) -> None:
        self.clock = clock or SimulatedClock()
        self._root = _DirectoryNode()
        self._pending: list[_EntryChange] = []
        self._locked: set[_Node] = set()
        # Hears of each operation that changes something, before it happens.
        self.before: Callable[[str, Path], None] | None = None
        # Says with which error, if any, an operation is refused.
        self.refuse: Callable[[str, Path], OSError | None] | None = None
        # Whether what a refused sync() has covered is never synced, unless written again.
        self.failed_sync_forgets = False
        # How many bytes all files may have together; a write past that is cut short.
        self.capacity_bytes: int | None = None

    # --- crashes --------------------------------------------------------------------------

    def clone_after_crash(self, seed: int) -> CrashFileSystem:
        """Return what the next life finds when the power fails now. This one goes on."""
        source = random.Random(seed)
        survived: dict[_DirectoryNode, dict[str, _Node]] = {}
        for change in self._surviving_changes(source):
            for directory, name, node in change:
                _set(survived.setdefault(directory, dict(directory.durable)), name, node)
        copies: dict[_Node, _Node] = {}

        def copy(node: _Node) -> _Node:
            if node not in copies:
                if isinstance(node, _FileNode):
                    copies[node] = node.after_crash(source)
                else:
                    made = copies[node] = _DirectoryNode()
                    entries = survived.get(node, node.durable)
                    made.durable = {name: copy(entries[name]) for name in sorted(entries)}
                    made.entries = dict(made.durable)
            return copies[node]

        return self._next_life(copy(self._root))

    def clone_after_kill(self) -> CrashFileSystem:
        """Return what the next process finds when this one is killed now: all of it."""

        def copy(node: _Node) -> _Node:
            if isinstance(node, _FileNode):
                return node.as_it_is()
            entries = {name: copy(child) for name, child in sorted(node.entries.items())}
            return _DirectoryNode(entries, dict(entries))

        return self._next_life(copy(self._root))

    def _surviving_changes(self, source: random.Random) -> list[_EntryChange]:
        if source.random() < 0.5:
            return self._pending[: source.randint(0, len(self._pending))]
        kept: list[_EntryChange] = []
        lost: set[_Node] = set()
        for change in self._pending:
            nodes = {node for _, _, node in change if node is not None}
            if nodes & lost or source.random() < 0.5:
                lost |= nodes
            else:
                kept.append(change)
        return kept

    def _next_life(self, root: _Node) -> CrashFileSystem:
        following = CrashFileSystem(self.clock)
        assert isinstance(root, _DirectoryNode)
        following._root = root
        return following

    def files(self, directory: Path) -> dict[str, bytes]:
        """Return the bytes of all files below a directory, by their relative paths."""

        def walk(node: _Node, prefix: str) -> Iterator[tuple[str, bytes]]:
            assert isinstance(node, _DirectoryNode)
            for name, child in sorted(node.entries.items()):
                if isinstance(child, _FileNode):
                    yield prefix + name, bytes(child.data)
                else:
                    yield from walk(child, f"{prefix}{name}/")

        return dict(walk(self._find(directory), ""))

    # --- storage.files.FileSystem ---------------------------------------------------------

    def open(self, path: Path, *, write: bool = False) -> CrashFile:
        node = self._look_up(path)
        if node is None and write:
            self._operation("create", path)
            node = _FileNode(modified_ms=self.clock.now_ms())
            self._change((self._directory(path.parent), path.name, node))
        return CrashFile(self, path, self._file(path))

    def exists(self, path: Path) -> bool:
        return self._look_up(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._look_up(path), _DirectoryNode)

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def list(self, directory: Path) -> list[str]:
        return sorted(self._directory(directory).entries)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        for level in [*reversed(path.parents), path]:
            if self._look_up(level) is None:
                self._operation("make_directory", level)
                self._change((self._directory(level.parent), level.name, _DirectoryNode()))

    def rename(self, source: Path, target: Path) -> None:
        node = self._find(source)
        self._operation("rename", source)
        self._change(
            (self._directory(source.parent), source.name, None),
            (self._directory(target.parent), target.name, node),
        )

    def remove(self, path: Path) -> None:
        if self._look_up(path) is not None:
            self._file(path)
            self._operation("remove", path)
            self._change((self._directory(path.parent), path.name, None))

    def remove_tree(self, path: Path) -> None:
        node = self._look_up(path)
        if isinstance(node, _DirectoryNode):
            for name in sorted(node.entries):
                self.remove_tree(path / name)
            self._operation("remove", path)
            self._change((self._directory(path.parent), path.name, None))
        else:
            self.remove(path)

    def read_bytes(self, path: Path, size_max: int = READ_BYTES_MAX) -> bytes:
        return bytes(self._file(path).data)

    def is_regular(self, path: Path) -> bool:
        return self.exists(path) and not self.is_directory(path)

    def is_link(self, path: Path) -> bool:
        return False

    def write_bytes(self, path: Path, data: Buffer) -> None:
        file = self.open(path, write=True)
        file.truncate(0)
        file.append(0, (data,))

    def write_private(self, path: Path, data: bytes) -> None:
        self.write_bytes(path, data)

    def make_private(self, path: Path) -> int | None:
        return None

    def write_atomically(self, path: Path, data: Buffer, *, is_private: bool = False) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self.write_bytes(temporary, data)
        self.open(temporary, write=True).sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        synced = self._directory(path)
        self._operation("sync_directory", path)
        later = []
        for change in self._pending:
            if any(directory is synced for directory, _, _ in change):
                for directory, name, node in change:
                    _set(directory.durable, name, node)
            else:
                later.append(change)
        self._pending = later

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._operation("set_modified", path)
        self._file(path).modified_ms = modified_ms

    def space(self, path: Path) -> tuple[int, int]:
        used = sum(map(len, self.files(Path("/")).values()))
        total = self.capacity_bytes if self.capacity_bytes is not None else 2 * used
        return total, total - used

    def lock(self, path: Path) -> object:
        node = self.open(path, write=True).node
        if node in self._locked:
            raise DirectoryInUse(f"{path} is locked")
        self._locked.add(node)
        return _Lock(self._locked, node)

    # --- within ---------------------------------------------------------------------------

    def write(self, path: Path, node: _FileNode, position: int, octets: bytes) -> None:
        """Write into a file, as far as there is room."""
        try:
            self._operation("write", path)
        except DiskFailure:
            node.apply((position, octets[: len(octets) // 2]))
            raise
        room = len(octets)
        if self.capacity_bytes is not None:
            free = self.capacity_bytes - sum(map(len, self.files(Path("/")).values()))
            room = max(0, min(room, free - (position - len(node.data))))
        node.apply((position, octets[:room]))
        node.modified_ms = self.clock.now_ms()
        if room < len(octets):
            raise DiskFailure(path, OSError(errno.ENOSPC, "No space left on device"))

    def truncate(self, path: Path, node: _FileNode, size: int) -> None:
        """Cut or fill up a file."""
        self._operation("truncate", path)
        node.apply(size)
        node.modified_ms = self.clock.now_ms()

    def sync(self, path: Path, node: _FileNode) -> None:
        """Make a file's bytes durable."""
        try:
            self._operation("sync", path)
        except DiskFailure:
            if self.failed_sync_forgets:
                node.pending.clear()
            raise
        node.sync()

    def _operation(self, kind: str, path: Path) -> None:
        if self.before is not None:
            self.before(kind, path)
        error = self.refuse(kind, path) if self.refuse is not None else None
        if error is not None:
            raise DiskFailure(path, error)

    def _change(self, *changes: tuple[_DirectoryNode, str, _Node | None]) -> None:
        for directory, name, node in changes:
            _set(directory.entries, name, node)
        self._pending.append(changes)

    def _look_up(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in path.parts[1:]:
            node = node.entries.get(name) if isinstance(node, _DirectoryNode) else None
        return node

    def _find(self, path: Path) -> _Node:
        node = self._look_up(path)
        if node is None:
            raise DiskFailure(path, FileNotFoundError(errno.ENOENT, "No such file", str(path)))
        return node

    def _file(self, path: Path) -> _FileNode:
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise DiskFailure(path, IsADirectoryError(errno.EISDIR, "Is a directory", str(path)))
        return node

    def _directory(self, path: Path) -> _DirectoryNode:
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            cause = NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
            raise DiskFailure(path, cause)
        return node


class CrashFile:
    """A storage.files.File of a CrashFileSystem."""

    is_fixed = False

    def __init__(self, fs: CrashFileSystem, path: Path, node: _FileNode) -> None:
        self._fs, self.path, self.node = fs, path, node

    def size(self) -> int:
        return len(self.node.data)

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        octets = b"".join(buffers)
        self._fs.write(self.path, self.node, position, octets)
        return len(octets)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.node.data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes:
        return self.read(position, size)

    def truncate(self, size: int) -> None:
        self._fs.truncate(self.path, self.node, size)

    def free(self, position: int, size: int) -> None:
        there = max(min(size, self.size() - position), 0)
        self._fs.write(self.path, self.node, position, bytes(there))

    def sync(self) -> None:
        self._fs.sync(self.path, self.node)

    def opened(self) -> None:
        """Let nobody sync it but by sync()."""

    def rename(self, target: Path) -> None:
        self._fs.rename(self.path, target)
        self.path = target

    def follow(self, path: Path) -> None:
        self.path = path

    def hold(self) -> CrashFile:
        return self


class _Lock:
    """A held lock, given up with the last reference to it."""

    def __init__(self, locked: set[_Node], node: _Node) -> None:
        self._locked, self._node = locked, node

    def __del__(self) -> None:
        self._locked.discard(self._node)


def _apply(data: bytearray, change: _Change) -> None:
    if isinstance(change, int):
        del data[change:]
        data.extend(bytes(change - len(data)))
    else:
        position, octets = change
        if octets:
            data.extend(bytes(max(0, position - len(data))))
            data[position : position + len(octets)] = octets


def _sectors(change: _Change) -> Iterator[_Change]:
    """Split a write where a sector ends: disks write whole ones, in any order."""
    if isinstance(change, int) or not change[1]:
        yield change
        return
    position, octets = change
    start = 0
    while start < len(octets):
        end = min(len(octets), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        yield position + start, octets[start:end]
        start = end


def _set(entries: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
