"""Reads segments of shared topics from the object store, some ranges ahead of their reader."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate

from odradek.broker.shared.snapshot import Piece, SharedLogs, open_store
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_files import Segment, changed
from odradek.storage.files import Buffer
from odradek.storage.objects.store import ObjectMissing, ObjectStore, ObjectStoreError

# A task has up to eight blocks in memory, three of which may be under way.
_BLOCK_BYTES = 8 << 20
_KEPT, _AHEAD = 8, 3

_threads = ThreadPoolExecutor(_AHEAD + 1, "objects")


class SharedBytes:
    """The bytes of some segments, which share objects and are read one after the other."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Open the object store. Raises SnapshotError."""
        shared = segments[0].shared
        assert shared is not None
        pieces = [piece for one in segments if one.shared for piece in one.shared.part.pieces]
        self._blocks = _Blocks(open_store(shared.logs.store), pieces)

    def open(self, segment: Segment) -> io.RawIOBase:
        """Return a file of a segment's bytes."""
        assert segment.shared is not None
        return _PiecesFile(self._blocks, segment.path, segment.shared.part.pieces)


def read_piece(logs: SharedLogs, piece: Piece) -> Buffer:
    """Return the bytes of a piece. Raises SnapshotError and ObjectStoreError."""
    return open_store(logs.store).read_range(piece.key, piece.position, piece.size_bytes)


class _Blocks:
    """The ranges of objects that pieces need, each fetched once if they are read in order."""

    def __init__(self, store: ObjectStore, pieces: Iterable[Piece]) -> None:
        self._store = store
        extents: dict[str, tuple[int, int]] = {}
        for piece in pieces:
            if piece.body is None:
                start, end = piece.position, piece.position + piece.size_bytes
                first, last = extents.get(piece.key, (start, end))
                extents[piece.key] = min(first, start), max(last, end)
        # By object, where its first range begins, and its number in the order of reading.
        self._firsts: dict[str, tuple[int, int]] = {}
        self._ranges: list[tuple[str, int, int]] = []
        for key, (first, last) in extents.items():
            self._firsts[key] = first, len(self._ranges)
            for start in range(first, last, _BLOCK_BYTES):
                self._ranges.append((key, start, min(_BLOCK_BYTES, last - start)))
        self._fetched: dict[int, Future[Buffer]] = {}

    def read(self, key: str, position: int, size: int) -> memoryview:
        """Return some bytes from a position on, at most as many as given.

        Raises ObjectStoreError.
        """
        first, number = self._firsts[key]
        number += (position - first) // _BLOCK_BYTES
        block = self._block(number)
        start = position - self._ranges[number][1]
        return memoryview(block)[start : start + size]

    def _block(self, number: int) -> Buffer:
        for ahead in range(number, min(number + 1 + _AHEAD, len(self._ranges))):
            if ahead not in self._fetched:
                self._fetched[ahead] = _threads.submit(
                    self._store.read_range, *self._ranges[ahead]
                )
        block = self._fetched.pop(number)
        self._fetched[number] = block  # the last one that was used
        while len(self._fetched) > _KEPT:
            self._fetched.pop(next(iter(self._fetched))).cancel()
        return block.result()


class _PiecesFile(io.RawIOBase):
    """A file that consists of pieces."""

    def __init__(self, blocks: _Blocks, path: str, pieces: Sequence[Piece]) -> None:
        self._blocks, self._path, self._pieces = blocks, path, pieces
        *self._starts, self._size = accumulate((one.size_bytes for one in pieces), initial=0)
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position from the begin or the end; return it from the begin."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as there are bytes; return how many. Raises PipelineError."""
        out, done = memoryview(buffer), 0
        while done < len(out) and self._position < self._size:
            number = bisect_right(self._starts, self._position) - 1
            piece, start = self._pieces[number], self._position - self._starts[number]
            part = self._part(piece, start, min(len(out) - done, piece.size_bytes - start))
            out[done : done + len(part)] = part
            done, self._position = done + len(part), self._position + len(part)
        return done

    def _part(self, piece: Piece, start: int, size: int) -> memoryview:
        if piece.body is not None:
            return memoryview(piece.body)[start : start + size]
        try:
            return self._blocks.read(piece.key, piece.position + start, size)
        except ObjectMissing:
            raise PipelineError(changed(self._path, "was removed")) from None
        except ObjectStoreError as error:
            raise PipelineError(f"{self._path} cannot be read: {error}") from error
