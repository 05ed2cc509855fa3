"""Loads a partition's log from its directory, after a clean stop or a crash.

After a crash each kind of file is treated as in Kafka's LogLoader:

    .deleted            was about to be removed: removed
    .cleaned            a cleaner's unfinished output: removed
    .swap               a finished output whose exchange had begun: the exchange is finished,
                        or undone if a .cleaned file of its group still exists
    a torn last batch   cut off, with all that follows
    index files         rebuilt from the log past the recovery point, and where they are missing
    transaction indexes rebuilt with the producers, where those are read back from the log
    producer snapshots  past the recovery point they may describe lost batches: rebuilt
    leader epochs       the next one begins: records that consumers have read may be lost (KIP-320)

1. After an unclean stop each batch past the recovery point is checked before the log has it.
2. When a tail is cut off, all later segments are removed before it, the last one first: a crash in
   between leaves no hole.
3. The log's start never lies past its end.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.errors import CorruptFile
from odradek.storage.exchange import base_offset_of, repair
from odradek.storage.files import FileSystem
from odradek.storage.flushing import sync_files
from odradek.storage.log import Log
from odradek.storage.partition_directories import PARTITION_METADATA, begin_topic_id
from odradek.storage.producers import ProducerStates
from odradek.storage.readable_log import LogIdentity, LogParts
from odradek.storage.reading import replay, segment_index
from odradek.storage.rolling import begin_segment, draw_roll_jitter_ms
from odradek.storage.segment import (
    INDEX,
    LOG,
    NAME_DIGITS,
    SUFFIXES,
    TIME_INDEX,
    Segment,
)

logger = logging.getLogger(__name__)

# Re-reading a segment of this size takes so long that it is logged.
_LOGGED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A log's entries in the directory's checkpoints, and whether the stop was clean.

    `must_rewrite` says that a flush has failed: the system may then count bytes as written that
    are not on the disk, and only writing them again is safe.
    """

    recovery_point: int
    log_start_offset: int
    was_clean: bool
    must_rewrite: bool = False
    # Clients may have got this epoch from the broker that had the log before.
    leader_epoch_min: int = -1
    # Whether the log only has the epochs of another one (storage.copied_log).
    is_copy: bool = False


def load_log(
    fs: FileSystem,
    directory: Path,
    identity: LogIdentity,
    config: TopicConfig,
    checkpointed: Checkpointed,
    *,
    now_ms: int,
    random_source: random.Random,
) -> Log:
    """Load the log of a directory, repairing it after a crash; create it when empty.

    The small files of a new log become durable with its first records: until then they can be
    made again. Raises DiskFailure. Damage is repaired or skipped, and logged.
    """
    is_new = not fs.exists(directory)
    fs.make_directory(directory)
    repair(fs, directory)
    segments = _open_segments(fs, directory, config, checkpointed.log_start_offset)
    flushed_end = checkpointed.recovery_point
    was_clean = checkpointed.was_clean and _is_tail_intact(segments[-1], flushed_end)
    if not was_clean:
        segments = _recover(fs, segments, config, flushed_end)
        if flushed_end > segments[-1].next_offset:
            logger.warning(
                "re-read a whole log: its recovery point is past its end directory=%s offset=%d",
                directory, flushed_end,
            )  # fmt: skip
            flushed_end = 0
            segments = _recover(fs, segments, config, flushed_end)
        if checkpointed.must_rewrite:
            _write_again(segments, flushed_end)
    end = segments[-1].next_offset
    if was_clean:
        flushed_end = end
        for segment in segments:
            _rebuild_missing(fs, segment)
    epochs = _load_epochs(fs, directory, segments, checkpointed.log_start_offset)
    start = _start_offset(checkpointed.log_start_offset, segments, epochs, directory)
    latest = epochs.latest
    epochs.truncate_end(end + 1)
    if is_new and end == 0 and not checkpointed.is_copy:
        epochs.begin(max(checkpointed.leader_epoch_min, 0))
        begin_topic_id(fs, directory, identity.topic_id)
    elif not checkpointed.is_copy and (latest < 0 or not was_clean):
        # A crash may have taken the file of the first epoch, in which clients read records.
        epochs.assign(latest + 1 if was_clean else max(latest, 0) + 1, end)
    epochs.assign(checkpointed.leader_epoch_min, end)
    for segment in segments:
        segment.created_ms = now_ms
    for segment in segments[:-1]:
        segment.is_durable = True
    segments[-1].roll_jitter_ms = draw_roll_jitter_ms(config, random_source)
    producers = _load_producers(fs, directory, segments, start, flushed_end)
    parts = LogParts(segments, start, end, epochs, producers)
    log = Log(fs, directory, identity, config, parts, random_source)
    log.active.has_durable_names = was_clean and end > 0
    if end == 0:  # an attempt to begin it may have failed between its files and their sync
        log.unsynced += [epochs.path, directory / PARTITION_METADATA]
    return log


def _open_segments(
    fs: FileSystem, directory: Path, config: TopicConfig, log_start_offset: int
) -> list[Segment]:
    """Open the segments; begin the first one of an empty directory."""
    names = set(fs.list(directory))
    bases = sorted(base_offset_of(name) for name in names if _is_log(name))
    for name in names:
        if name.endswith(SUFFIXES) and not _is_log(name) and base_offset_of(name) not in bases:
            fs.remove(directory / name)
    if not bases:
        # Its name need not be durable before it has a batch: see Log.unflushed().
        return [begin_segment(fs, directory, log_start_offset, config)]
    return [Segment(fs, directory, base) for base in bases]


def _rebuild_missing(fs: FileSystem, segment: Segment) -> None:
    """Rebuild a segment's indexes when one is missing; their entries are checked when used."""
    for kind in (INDEX, TIME_INDEX):
        if not fs.exists(segment.path(kind)):
            segment.transactions.damage = CorruptFile(segment.path(kind), 0, "missing")
            segment.rebuild_indexes(segment.transactions.damage)
            segment.flush()
            return


def _is_tail_intact(active: Segment, end: int) -> bool:
    """Check the end of a log that was stopped cleanly, as its offsets continue from there.

    All of it was on the disk: damage before intact batches is skipped, not cut off.
    """
    try:
        try:
            active.check_tail()
        except CorruptFile as damage:
            active.rebuild_indexes(damage)
            active.flush()
            active.check_tail()
    except CorruptFile as error:
        logger.warning("recovered a log though it was stopped cleanly: %s", error)
        return False
    return active.next_offset >= end  # if not, a part of the file is gone


def _recover(
    fs: FileSystem, segments: list[Segment], config: TopicConfig, recovery_point: int
) -> list[Segment]:
    """Check the segments past the recovery point; return the intact ones, made durable."""
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        # A segment that ends at the recovery point may have been sealed after that flush, so
        # its indexes may be torn.
        if following is not None and following < recovery_point:
            _rebuild_missing(fs, segment)
            continue
        if segment.size_bytes >= _LOGGED_BYTES:
            logger.info("re-reading file=%s bytes=%d", segment.path(LOG), segment.size_bytes)
        offset_max = segment.offset_max if following is None else following - 1
        end, next_offset = segment.check_batches(offset_max, config.index_interval_bytes)
        lost = segments[at + 1 :] if end < segment.size_bytes else []
        if end < segment.size_bytes:
            logger.warning(
                "cut a tail file=%s position=%d bytes=%d segments_after=%d",
                segment.path(LOG), end, segment.size_bytes - end, len(lost),
            )  # fmt: skip
        # Backwards from the end, so that a crash in between leaves no hole.
        for later in reversed(lost):
            later.remove()
        if lost:
            fs.sync_directory(segment.directory)
        segment.cut(end, next_offset)
        segment.flush()
        if lost:
            return segments[: at + 1]
    return segments


def _write_again(segments: Sequence[Segment], recovery_point: int) -> None:
    """Write the batches past the recovery point again, in their place, and flush them."""
    for segment in segments[segment_index(segments, recovery_point) :]:
        segment.write_again(recovery_point)
        segment.flush()


def _start_offset(
    checkpointed: int, segments: Sequence[Segment], epochs: LeaderEpochs, directory: Path
) -> int:
    """Return the checkpointed start offset, unless the log or its epochs say that it is wrong."""
    first, end = segments[0].base_offset, segments[-1].next_offset
    if checkpointed > end:
        # Only durable offsets are checkpointed, so the checkpoint is damaged, not the log.
        logger.warning(
            "left out a log start offset past the log's end directory=%s offset=%d end=%d",
            directory, checkpointed, end,
        )  # fmt: skip
        return first
    # The first epoch begins where the log does, and is written before the checkpoint.
    known = epochs.entries[0][1] if epochs.entries else checkpointed
    if checkpointed > max(first, known):
        logger.warning(
            "left out a log start offset that the leader epochs do not have, or they are damaged "
            "directory=%s offset=%d epochs_start=%d",
            directory, checkpointed, known,
        )  # fmt: skip
        return max(first, known)
    return max(checkpointed, first)


def _load_epochs(
    fs: FileSystem, directory: Path, segments: Sequence[Segment], log_start_offset: int
) -> LeaderEpochs:
    epochs = LeaderEpochs(fs, directory)
    try:
        epochs.load()
    except CorruptFile as error:
        logger.warning("read the leader epochs from the log: %s", error)
        epochs = LeaderEpochs(fs, directory)
    if epochs.latest < 0:
        found: list[tuple[int, int]] = []
        for segment in segments:
            for _, header, _ in segment.batches():
                if header.leader_epoch > (found[-1][0] if found else -1):
                    found.append((header.leader_epoch, header.base_offset))
        epochs.restore(found)
        epochs.truncate_start(log_start_offset)
    return epochs


def _load_producers(
    fs: FileSystem,
    directory: Path,
    segments: Sequence[Segment],
    log_start_offset: int,
    flushed_end: int,
) -> ProducerStates:
    """Read the newest trusted snapshot, then the log's batches after it.

    The transaction indexes are rebuilt from the same batches.
    """
    producers = ProducerStates(fs, directory)
    bases = [segment.base_offset for segment in segments]
    end = segments[-1].next_offset
    ends = [*bases[1:], end]
    trusted_end = min(flushed_end, _first_damaged(segments, ends))
    start = _load_snapshot(producers, bases[0], trusted_end)
    if start is None:
        start = log_start_offset
    for segment, following in zip(segments, ends, strict=True):
        if segment.base_offset > trusted_end:
            producers.write_snapshot(segment.base_offset)
        if following >= start:
            # Also where the log ends: a crash may have left the entry of a lost marker.
            aborted = [
                producers.replay(header, data)
                for header, data in (replay((segment,), start) if following > start else ())
                if header.producer_id >= 0
            ]
            segment.transactions.restore(start, [one for one in aborted if one is not None])
    if start < end and len(producers):
        # The snapshots removed below may hold producers that are no longer in the log.
        producers.write_snapshot(end)
    written = producers.take_unsynced()
    if written:
        sync_files(fs, written)
        producers.sync_directory()
    for offset in producers.snapshot_offsets():
        if offset not in bases and offset != end:
            producers.remove_snapshot(offset)
    return producers


def _first_damaged(segments: Sequence[Segment], ends: Sequence[int]) -> int:
    """Return the base offset of the first segment with a damaged transaction index, or the end."""
    for segment, end in zip(segments, ends, strict=True):
        try:
            segment.transactions.check(segment.base_offset, end)
        except CorruptFile as error:
            logger.warning("read aborted transactions from the log: %s", error)
            return segment.base_offset
    return ends[-1]


def _load_snapshot(producers: ProducerStates, log_base: int, trusted_end: int) -> int | None:
    """Read the newest usable snapshot; return its offset, None when there is none."""
    offsets = producers.snapshot_offsets()
    trusted = [offset for offset in offsets if log_base <= offset <= trusted_end]
    if len(trusted) < len(offsets):
        for offset in set(offsets).difference(trusted):
            producers.remove_snapshot(offset)
        # If one came back after a crash, the next recovery would take it for one of this log.
        producers.sync_directory()
    for offset in reversed(trusted):
        try:
            producers.read_snapshot(offset)
        except CorruptFile as error:
            logger.warning("left out a producer snapshot: %s", error)
            producers.clear()
            producers.remove_snapshot(offset)
            continue
        return offset
    return None


def _is_log(name: str) -> bool:
    return len(name) == NAME_DIGITS + len(LOG) and name.endswith(LOG) and base_offset_of(name) >= 0
