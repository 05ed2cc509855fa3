"""The metadata database on the disk: whole images, sealed with a checksum, in several places.

    odradek.db         in each log directory    | SQLite database | generation i64 | crc u32 |
    odradek.db.copy    in the first one         the same bytes

The CRC-32C covers all bytes before it; the generation grows with every write. The first directory
has two files, so that damage to one of them, or the loss of any other directory, loses nothing.

SQLite does not notice a flipped bit in a row, and checks page headers only. A checksum for each
row would leave page headers, free pages and indexes unguarded, and would detect damage without
repairing it. A live database and a copy beside it change one after the other: a difference can
mean a crash or damage. So the database lives in memory and only whole images are written, each by
an atomic replacement. A file then holds an intact image, old or new, or it is damaged: there is no
third case, no journal, and no step at which a crash needs thought. The price is that a change
writes the whole database, 80 bytes a topic and twice: for 10,000 topics that is under two
megabytes, and the wait for the disk takes most of the time.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.storage.errors import CorruptFile, DiskFailure
from odradek.storage.files import Buffer, FileSystem

logger = logging.getLogger(__name__)

# No partition directory can have this name: those end in "-<number>".
DATABASE_NAME = "odradek.db"
COPY_NAME = DATABASE_NAME + ".copy"
_DAMAGED_SUFFIX = ".damaged"
# The files of a broker whose metadata is in a catalog now have this name.
MOVED_SUFFIX = ".moved-to-catalog"

_GENERATION = struct.Struct(">q")
_CRC = struct.Struct(">I")
_SEAL_SIZE = _GENERATION.size + _CRC.size


def places(directories: Sequence[Path]) -> list[Path]:
    """Return the paths at which the files may be."""
    found = [path / DATABASE_NAME for path in directories]
    found.insert(1, directories[0] / COPY_NAME)
    return found


class NoIntactImage(Exception):
    """No image can be relied on; the message says what an operator can do."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The file at one place; `generation` is None unless the image is intact."""

    path: Path
    data: bytes | None  # None when there is no file, or it cannot be read
    generation: int | None
    cause: str = ""


class Images:
    """The places of the image; one thread uses it at a time."""

    def __init__(self, fs: FileSystem, directories: Sequence[Path]) -> None:
        self._fs = fs
        self._places = places(directories)
        self._found: list[_Found] = []
        self._newest: _Found | None = None
        self._generation = 0
        self._failing: set[Path] = set()

    @property
    def path(self) -> Path:
        """The first place, which messages name for all."""
        return self._places[0]

    @property
    def generation(self) -> int:
        """The number of the last write."""
        return self._generation

    def read(self) -> bytes | None:
        """Return the newest intact image, None when there is no file at all.

        Changes nothing but the permissions of the files. Raises NoIntactImage.
        """
        self._found = [self._look(path) for path in self._places]
        if all(one.data is None and not one.cause for one in self._found):
            self._refuse_moved()
        intact = [one for one in self._found if one.generation is not None]
        if not intact:
            damaged = [one for one in self._found if one.cause]
            if damaged:
                raise NoIntactImage(_advice(damaged))
            return None
        newest = max(intact, key=lambda one: one.generation or 0)
        assert newest.data is not None and newest.generation is not None
        for one in intact:
            _check_same_cluster(newest, one)
        self._newest, self._generation = newest, newest.generation
        return newest.data[:-_SEAL_SIZE]

    def _refuse_moved(self) -> None:
        """Raise NoIntactImage for directories whose metadata is in a catalog."""
        for path in self._places:
            moved = Path(f"{path}{MOVED_SUFFIX}")
            if self._fs.exists(moved):
                raise NoIntactImage(
                    f"{moved} says that the metadata of these log directories is in a catalog: "
                    "set odradek.catalog.url, or bring it back by `odradek cluster export`. Only "
                    "if the catalog is lost, move this file away: topics are then created again "
                    "from the directories of their partitions, without their settings"
                )

    def mend(self) -> None:
        """Write the image that was read to all other places; rename damaged files to keep them.

        Only for the process that holds the directories.
        """
        if self._newest is None:
            return
        for found in self._found:
            if found.data == self._newest.data:
                continue
            self._report(found, self._newest)
            if found.cause and found.data is not None:
                with suppress(DiskFailure):  # a failure must not prevent the start
                    self._fs.rename(found.path, Path(f"{found.path}{_DAMAGED_SUFFIX}"))
            assert self._newest.data is not None
            self._put(found.path, self._newest.data)
        self._found = []

    def skip_to(self, generation: int) -> None:
        """Let the next write have the generation after this one."""
        self._generation = generation

    def write(self, image: bytes) -> None:
        """Replace the image at every place.

        It is written when one place has it, since a start reads the newest. Raises DiskFailure
        when no place takes it; then another write must follow before the next read.
        """
        # Even a failed write may be found later: no two images may have the same generation.
        self._generation += 1
        data = bytearray(image)  # one copy: an image may have many megabytes
        data += _GENERATION.pack(self._generation)
        data += _CRC.pack(crc32c(data))
        failures = [failure for path in self._places if (failure := self._put(path, data))]
        if len(failures) == len(self._places):
            raise failures[0]

    def _look(self, path: Path) -> _Found:
        try:
            if not self._fs.exists(path):
                return _Found(path, None, None)
            data = self._fs.read_bytes(path)
            self._close_to_others(path)
        except DiskFailure as error:
            return _Found(path, None, None, str(error))
        if len(data) <= _SEAL_SIZE:
            return _Found(path, data, None, f"{len(data)} bytes are no database")
        (crc,) = _CRC.unpack_from(data, len(data) - _CRC.size)
        if crc32c(data[: -_CRC.size]) != crc:
            return _Found(path, data, None, "the checksum does not match")
        (generation,) = _GENERATION.unpack_from(data, len(data) - _SEAL_SIZE)
        return _Found(path, data, generation)

    def _close_to_others(self, path: Path) -> None:
        """Remove other users' permission to read the file, which has credentials and tokens."""
        try:
            mode = self._fs.make_private(path)
        except DiskFailure as error:
            logger.warning("other users may read credentials: %s", error)
            return
        if mode is not None:
            logger.warning(
                "closed a file with credentials to other users path=%s mode=%o former_mode=%o",
                path, mode & 0o700, mode,
            )  # fmt: skip

    def _report(self, found: _Found, newest: _Found) -> None:
        if found.cause:
            damage = found.cause
            if found.data is not None:
                assert newest.data is not None
                damage = str(
                    CorruptFile.differing(found.path, found.data, newest.data, found.cause)
                )
            logger.error(
                "repaired damaged metadata: %s; copied %s, and kept the damaged file as *%s",
                damage, newest.path, _DAMAGED_SUFFIX,
            )  # fmt: skip
        else:
            logger.info("brought up to date path=%s from=%s", found.path, newest.path)

    def _put(self, path: Path, data: Buffer) -> DiskFailure | None:
        try:
            self._fs.write_atomically(path, data, is_private=True)
        except DiskFailure as failure:
            if path not in self._failing:  # logged once, and again when writes succeed
                logger.error("could not write a copy of the metadata: %s", failure)
            self._failing.add(path)
            return failure
        if path in self._failing:
            self._failing.discard(path)
            logger.info("wrote a copy of the metadata again path=%s", path)
        return None


def _advice(damaged: Sequence[_Found]) -> str:
    causes = "; ".join(
        one.cause if one.data is None else f"{one.path} is damaged: {one.cause}" for one in damaged
    )
    return (
        f"{causes}. Restore one of them from a backup; or move them away: topics are then created "
        "again from the directories of their partitions, without their settings"
    )


def _check_same_cluster(newest: _Found, other: _Found) -> None:
    if newest.data != other.data:
        ids = {str(one.path): _cluster_id(one) for one in (newest, other)}
        if len(set(ids.values())) > 1:
            sources = " and ".join(f"{path} ({cluster_id})" for path, cluster_id in ids.items())
            raise NoIntactImage(f"{sources} belong to different clusters: choose other log.dirs")


def _cluster_id(found: _Found) -> str:
    assert found.data is not None
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(found.data[:-_SEAL_SIZE])
        ((cluster_id,),) = database.execute("SELECT id FROM cluster")
        return str(cluster_id)

