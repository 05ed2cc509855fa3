"""Moves a log to another log directory while clients append to it and read it.

    a/orders-0/                          b/orders-0.81d7…-future/
      00000000000000000000.log    copied   00000000000000000000.log
      00000000000000008192.log    copied   00000000000000008192.log
      00000000000000009000.log  appended

A thread copies sealed segments, with their indexes and snapshots. When they are copied, the active
segment is sealed and copied too, and so on, until little is left. Then the log's owner copies and
syncs the rest while the log waits, and the log continues in the copy: the copy's directory is
renamed to `orders-0`, and all later appends go there. The next flush makes that name durable and
moves the old directory away; only then do the later appends count as durable.

A crash can leave:

    a/orders-0  b/orders-0.…-future   the copy was not finished: it begins again
    a/orders-0  b/orders-0            the log has just moved: both hold all durable batches; the
                                      one with the later leader epoch, or the later end, is kept
                b/orders-0            the log has moved
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.storage.checkpoints import Checkpoints
from odradek.storage.directory import LogDirectory
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.errors import CopyCancelled, CorruptFile, DiskFailure
from odradek.storage.exchange import base_offset_of
from odradek.storage.files import FileSystem
from odradek.storage.flushing import sync_files
from odradek.storage.log import Log
from odradek.storage.partition_directories import future_name, note_topic_id
from odradek.storage.segment import LOG, SNAPSHOT, SUFFIXES, Segment, create_segment, file_name

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
# The last bytes, up to this size, are copied while the log waits.
TAIL_BYTES_MAX = 256 << 10
# Kafka's default of index.interval.bytes, for the indexes that _end() builds in memory and drops.
_INDEX_INTERVAL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Work:
    """The next work of a thread on a copy: segments to copy, and copies to remove."""

    missing: Sequence[Segment]
    obsolete: Sequence[Segment]


class Copy:
    """The copy of one log in another log directory.

    The event loop owns it; carry_on() and discard() run in a thread, one at a time.
    """

    def __init__(
        self, fs: FileSystem, log: Log, source: LogDirectory, home: LogDirectory
    ) -> None:
        self._fs = fs
        self.log, self.source, self.home = log, source, home
        self.directory = home.path / future_name(log.topic, log.partition)
        self.is_cancelled = False
        # The part of the log that is copied, and the offset where it ends.
        self.size_bytes, self.end_offset = 0, log.log_start_offset
        # The log's old directory, once it is renamed to be removed.
        self.left: Path | None = None
        self._copied: dict[Segment, Segment] = {}
        self._checkpoints = Checkpoints(0, {})
        self._epochs = LeaderEpochs(fs, self.directory)

    # --- in a thread ----------------------------------------------------------------------

    def begin(self) -> None:
        """Create the directory, durably, so that the next start knows of the move."""
        self._fs.make_directory(self.directory)
        note_topic_id(self._fs, self.directory, self.log.topic_id)
        self.home.sync()

    def carry_on(self, work: Work) -> None:
        """Copy segments durably. Raises DiskFailure and CopyCancelled."""
        for source in work.obsolete:
            target = self._copied.pop(source)
            self.size_bytes -= target.size_bytes
            self._fs.remove(_snapshot(target))
            target.remove()
        for source in work.missing:
            target, files = self._copy(source)
            sync_files(self._fs, files)
            target.is_durable = True
            self._copied[source] = target
            self.end_offset = target.next_offset
        if self._epochs.entries != self.log.epochs:
            self._epochs = self.log.copy_epochs(self.directory)
        self._fs.sync_directory(self.directory)

    def discard(self) -> None:
        """Remove the copy."""
        if self._fs.exists(self.directory):
            self.home.remove([self.home.vacate(self.directory.name)])

    def _copy(self, source: Segment) -> tuple[Segment, list[Path]]:
        """Copy a sealed segment; return its copy and the files, which are not synced yet."""
        files = []
        size_before = self.size_bytes
        for kind in (*(one for one in SUFFIXES if one != LOG), SNAPSHOT):
            path = source.directory / (file_name(source.base_offset) + kind + source.suffix)
            target = self.directory / (file_name(source.base_offset) + kind)
            self._fs.remove(target)
            if self._fs.exists(path):
                self._fs.write_bytes(target, self._fs.read_bytes(path))
                files.append(target)
        target = self.directory / (file_name(source.base_offset) + LOG)
        reader, writer = source.log.hold(), self._fs.open(target, write=True)
        writer.truncate(0)
        while (position := self.size_bytes - size_before) < source.size_bytes:
            if self.is_cancelled or self.log.is_closed:
                raise CopyCancelled(f"the move of {self.log.name} was cancelled")
            data = reader.read(position, min(_CHUNK_BYTES, source.size_bytes - position))
            if not data:
                raise DiskFailure(source.path(LOG), OSError("the file ends too soon"))
            self.size_bytes += writer.append(position, (data,))
        self._fs.set_modified_ms(target, source.modified_ms)
        made = Segment(self._fs, self.directory, source.base_offset)
        made.created_ms, made.roll_jitter_ms = source.created_ms, source.roll_jitter_ms
        # Looked up now and kept, because the lookup may read the disk.
        _ = made.next_offset, made.max_timestamp, made.first_timestamp()
        return made, [*files, target]

    # --- on the loop ----------------------------------------------------------------------

    def next_work(self) -> Work:
        """Return the segments to copy, and the copied ones that have left the log."""
        sealed = self.log.segments[:-1]
        return Work(
            [one for one in sealed if one not in self._copied],
            [one for one in self._copied if one not in sealed],
        )

    def finish(self, now_ms: int, tail_bytes_max: int) -> bool:
        """Let the log continue in the copy, if little is missing; else seal the missing part.

        Raises DiskFailure; then the log continues where it is.
        """
        log = self.log
        if self.is_cancelled or not log.settle() or self._epochs.entries != log.epochs:
            return False
        work = self.next_work()
        is_near = log.active.size_bytes <= tail_bytes_max
        log.roll(now_ms, "it moves to another directory")
        if work.missing or work.obsolete or not is_near:
            return False
        files: list[Path] = []
        for source in self.next_work().missing:  # the segment that was just sealed
            self._copied[source], files = self._copy(source)
            # Only here does the log wait for the disk: a flush of the old directory may be under
            # way, and a crash must not leave a copy that lacks these batches but has later ones.
            self._copied[source].sync_batches()
            self._fs.sync_directory(self.directory)
        sealed, active = log.segments[:-1], log.active
        made = create_segment(self._fs, self.directory, active.base_offset)
        made.created_ms, made.roll_jitter_ms = active.created_ms, active.roll_jitter_ms
        if self._fs.exists(_snapshot(active)):
            self._fs.write_bytes(_snapshot(made), self._fs.read_bytes(_snapshot(active)))
            files.append(_snapshot(made))
        directory = self.home.path / log.name
        segments = [*(self._copied[one] for one in sealed), made]
        self._fs.rename(self.directory, directory)
        for segment in segments:
            segment.follow(directory)
        self._epochs.follow(directory)
        handover = partial(self._hand_over, [directory / one.name for one in files])
        log.relocate(directory, segments, self._epochs, handover)
        self.home.take_over(log, self.source)
        self._checkpoints = self.home.take_checkpoints()
        return True

    def _hand_over(self, files: Sequence[Path]) -> None:
        """Make the copy the only directory of the log; runs in the flush after finish()."""
        sync_files(self._fs, files)
        self.home.sync()
        self.home.store(self._checkpoints)
        self.left = self.source.vacate(self.log.name)


def settle(fs: FileSystem, directories: Sequence[LogDirectory]) -> None:
    """Keep one directory of each log that a crash left in two; runs before logs are loaded."""
    homes: dict[tuple[str, int, bytes], list[LogDirectory]] = {}
    for home in directories:
        for (topic, number), topic_id in home.partitions_at_start.items():
            if topic_id is not None:
                homes.setdefault((topic, number, topic_id), []).append(home)
    for (topic, number, _), found in homes.items():
        if len(found) == 1:
            continue
        name = f"{topic}-{number}"
        ends = {home: _end(fs, home.path / name) for home in found}
        kept = max(found, key=lambda home: ends[home])
        for home in found:
            if home is not kept:
                logger.warning(
                    "removed the rest of an interrupted move path=%s end=%s, kept=%s end=%s",
                    home.path / name, ends[home], kept.path / name, ends[kept],
                )  # fmt: skip
                home.remove([home.vacate(name)])
                home.forget_offsets((topic, number))
                del home.partitions_at_start[topic, number]


def _end(fs: FileSystem, directory: Path) -> tuple[int, int]:
    """Return a log's last leader epoch and the end of its intact batches; reads the whole log.

    Each start after a crash begins an epoch: the directory with the later one was in use since.
    """
    epochs = LeaderEpochs(fs, directory)
    with contextlib.suppress(CorruptFile):
        epochs.load()
    bases = sorted(base_offset_of(name) for name in fs.list(directory) if name.endswith(LOG))
    following: int | None
    end_offset = 0
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        segment = Segment(fs, directory, base)
        offset_max = segment.offset_max if following is None else following - 1
        end, end_offset = segment.check_batches(offset_max, _INDEX_INTERVAL_BYTES)
        if end < segment.size_bytes:
            break
    return epochs.latest, end_offset


def _snapshot(segment: Segment) -> Path:
    return segment.directory / (file_name(segment.base_offset) + SNAPSHOT)
