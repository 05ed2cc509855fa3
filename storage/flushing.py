"""Writes the part of a log that may not be on the disk yet to the disk; may run in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem, Opened
from odradek.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Unflushed:
    """The part of a log that is not known to be on the disk; a thread may sync it."""

    fs: FileSystem
    segments: tuple[Segment, ...]
    small_files: tuple[Path, ...]  # the producers' snapshots; the first files of a new log
    directory: Path | None
    end_offset: int
    # Another step that must be done before anything counts as durable: see storage.moving.
    handover: Callable[[], None] | None = None

    def sync(self) -> None:
        """Make it durable: sealed segments with their indexes, the active segment's batches,
        small files, and the directory's entries when files were created. Raises DiskFailure."""
        for segment in self.segments[:-1]:
            segment.flush()
            segment.is_durable = True
        self.segments[-1].sync_batches()
        sync_files(self.fs, self.small_files)
        if self.directory is not None:
            try:
                self.fs.sync_directory(self.directory)
            except DiskFailure:
                if self.fs.exists(self.directory):  # if not, the log was deleted meanwhile
                    raise
        if self.handover is not None:
            self.handover()

    def file_to_sync(self) -> Opened | None:
        """Return the file whose sync is all that sync() does; None if there is more to do.

        Raises DiskFailure.
        """
        if len(self.segments) > 1 or self.small_files or self.directory or self.handover:
            return None
        return self.segments[0].file_to_sync()

    def fail(self, cause: OSError) -> DiskFailure:
        """Note that the sync of that file failed, permanently; return the error."""
        segment = self.segments[0]
        error = DiskFailure(segment.log.path, cause)
        segment.sync_failure = error
        return error


def sync_files(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Make small files durable, except those that no longer exist. Raises DiskFailure."""
    for path in paths:
        try:
            fs.open(path).sync()
        except DiskFailure:
            if fs.exists(path):
                raise
