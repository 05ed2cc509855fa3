"""Loads a partition's log from its directory, after a clean stop or a crash.

What a crash can leave, and what is done with it (Kafka's LogLoader):

    .deleted            was on its way out: removed
    .cleaned            a cleaner's unfinished output: removed
    .swap               a finished output whose exchange had begun: the exchange is finished,
                        unless a .cleaned of its group was still there, then it is undone
    a torn last batch   cut off, with all that follows
    index files         rebuilt from the log past the recovery point
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from pathlib import Path

from config.topic import TopicConfig
from protocol.batches import batch_crc
from storage.epochs import LeaderEpochs
from storage.errors import CorruptFile
from storage.files import FileSystem
from storage.log import Log
from storage.producers import ProducerStates
from storage.segment import (
    CLEANED,
    DELETED,
    LOG,
    SUFFIXES,
    SWAP,
    Segment,
    file_name,
)

logger = logging.getLogger(__name__)

_NAME_DIGITS = 20


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which partition a directory belongs to."""

    topic: str
    partition: int
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """What the log directory's checkpoints say of a log, and whether the stop was clean."""

    recovery_point: int
    log_start_offset: int
    was_clean: bool


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
    """Load the log of a directory, repairing what a crash left; create it when empty."""
    fs.make_directory(directory)
    _finish_exchanges(fs, directory)
    start = checkpointed.log_start_offset
    segments = _open_segments(fs, directory, start, now_ms)
    removed_bytes = 0
    if not checkpointed.was_clean:
        segments, removed_bytes = _recover(
            fs, segments, config, checkpointed.recovery_point, identity
        )
    end = segments[-1].next_offset
    epochs = _load_epochs(fs, directory)
    epochs.truncate_end(end + 1)
    if removed_bytes or epochs.latest < 0:
        # What was cut may have been read: a new epoch lets clients see that (KIP-320).
        epochs.assign(epochs.latest + 1, end)
    producers = _load_producers(fs, directory, segments, end)
    return Log(
        fs,
        directory,
        identity.topic,
        identity.partition,
        identity.topic_id,
        config,
        segments,
        log_start_offset=min(max(start, segments[0].base_offset), end),
        recovery_point=min(checkpointed.recovery_point, end) if checkpointed.was_clean else end,
        epochs=epochs,
        producers=producers,
        random_source=random_source,
    )


def _finish_exchanges(fs: FileSystem, directory: Path) -> None:
    """Remove, finish or undo what deletions and cleanings left half done."""
    names = fs.list(directory)
    for name in names:
        if name.endswith((DELETED, ".tmp")):
            fs.remove(directory / name)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    undo_from = min((_base_offset(n) for n in cleaned if LOG in n), default=None)
    for name in cleaned:
        fs.remove(directory / name)
    swaps = {_base_offset(n) for n in names if n.endswith(LOG + SWAP)}
    undone = {base for base in swaps if undo_from is not None and base >= undo_from}
    for name in names:
        if name.endswith(SWAP) and _base_offset(name) not in swaps - undone:
            fs.remove(directory / name)
    kept = [Segment(fs, directory, base, suffix=SWAP) for base in sorted(swaps - undone)]
    if not kept:
        return
    first = kept[0].base_offset
    end = max(segment.next_offset for segment in kept)
    for name in names:
        if name.endswith(SUFFIXES) and first <= _base_offset(name) < end:
            fs.remove(directory / name)
    for segment in kept:
        segment.rename("")
        logger.info("finished exchange of cleaned segment %s", segment.path(LOG))
    fs.sync_directory(directory)


def _open_segments(
    fs: FileSystem, directory: Path, log_start_offset: int, now_ms: int
) -> list[Segment]:
    names = fs.list(directory)
    bases = sorted(_base_offset(name) for name in names if _is_log(name))
    for name in names:
        if name.endswith(SUFFIXES) and not _is_log(name) and _base_offset(name) not in bases:
            fs.remove(directory / name)
    if not bases:
        bases = [log_start_offset]
        fs.open(directory / (file_name(log_start_offset) + LOG), write=True)
        fs.sync_directory(directory)
    segments = [Segment(fs, directory, base) for base in bases]
    for segment in segments:
        segment.created_ms = now_ms
    return segments


def _recover(
    fs: FileSystem,
    segments: list[Segment],
    config: TopicConfig,
    recovery_point: int,
    identity: LogIdentity,
) -> tuple[list[Segment], int]:
    """Check the segments past the recovery point; return what is intact and the bytes cut."""
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        if not is_last and segments[at + 1].base_offset <= recovery_point:
            _check_or_reindex(segment, config)
            continue
        cut_bytes = _reindex(segment, config)
        if cut_bytes:
            lost = segments[at + 1 :]
            for later in lost:
                cut_bytes += later.size_bytes
                later.rename(DELETED)
                later.remove()
            logger.warning(
                "cut a tail topic=%s partition=%d file=%s position=%d bytes=%d segments=%d",
                identity.topic, identity.partition, segment.path(LOG), segment.size_bytes,
                cut_bytes, len(lost),
            )  # fmt: skip
            segment.flush()
            return segments[: at + 1], cut_bytes
        segment.flush()
    return segments, 0


def _check_or_reindex(segment: Segment, config: TopicConfig) -> None:
    try:
        segment.check()
    except CorruptFile as error:
        logger.warning("rebuilt an index: %s", error)
        _reindex(segment, config)
        segment.seal()


def _reindex(segment: Segment, config: TopicConfig) -> int:
    """Re-read a segment, rebuild its indexes, and cut what is damaged; return the bytes cut."""
    segment.reset_index()
    size = segment.size_bytes
    position, next_offset = 0, segment.base_offset
    for position_of, header, data in segment.batches():
        if header.base_offset < next_offset or batch_crc(data, 0, len(data)) != header.crc:
            break
        segment.reindex(position_of, header, config.index_interval_bytes)
        position, next_offset = position_of + header.size_bytes, header.next_offset
    if position < size:
        segment.cut(position, next_offset)
    return size - position


def _load_epochs(fs: FileSystem, directory: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(fs, directory)
    try:
        epochs.load()
    except CorruptFile as error:
        logger.warning("began the leader epochs anew: %s", error)
        epochs = LeaderEpochs(fs, directory)
    return epochs


def _load_producers(
    fs: FileSystem, directory: Path, segments: list[Segment], end: int
) -> ProducerStates:
    """Read the newest usable snapshot and what the log has after it."""
    producers = ProducerStates(fs, directory)
    start = segments[0].base_offset
    bases = {segment.base_offset for segment in segments}
    for offset in reversed(producers.snapshot_offsets()):
        if not start <= offset <= end:
            producers.remove_snapshot(offset)
            continue
        try:
            producers.read_snapshot(offset)
        except CorruptFile as error:
            logger.warning("left out a producer snapshot: %s", error)
            producers.clear()
            producers.remove_snapshot(offset)
            continue
        start = offset
        break
    for segment in segments:
        if segment.next_offset <= start:
            continue
        found = segment.locate(start)
        if found is None:
            continue
        for _, header, _ in segment.batches(found[0]):
            if header.producer_id >= 0 and header.base_offset >= start:
                producers.update(header, header.last_offset)
    for offset in producers.snapshot_offsets():
        if offset not in bases and offset != end:
            producers.remove_snapshot(offset)
    return producers


def _is_log(name: str) -> bool:
    return name.endswith(LOG) and len(name) == _NAME_DIGITS + len(LOG) and name[0].isdigit()


def _base_offset(name: str) -> int:
    digits = name[:_NAME_DIGITS]
    return int(digits) if digits.isdigit() else -1
