"""What is in a log directory that Kafka has written, found out without changing anything."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.adoption.errors import AdoptionError
from storage import checkpoints
from storage.checkpoints import TopicPartition
from storage.directory import (
    CLEAN_MARKER,
    METADATA_DIRECTORY,
    PARTITION_METADATA,
    list_partitions,
)
from storage.epochs import LeaderEpochs
from storage.errors import CorruptFile
from storage.exchange import base_offset_of
from storage.files import FileSystem
from storage.index import OffsetIndex
from storage.meta_properties import META, read_properties
from storage.producers import ProducerStates
from storage.scan import walk
from storage.segment import INDEX, LOG, file_name


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition's directory; its end is None where the log's last batch is not whole."""

    path: Path
    topic: str
    number: int
    topic_id: bytes | None
    size_bytes: int
    start_offset: int
    end_offset: int | None
    leader_epoch: int
    # Of its newest producer snapshot: the largest id (-1 for none), transactions not ended.
    producer_id_max: int
    open_transactions: int
    # When the directory was made, as far as its file for the topic's id can tell.
    created_ms: int


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A log directory: whose it is, and the partitions in it."""

    path: Path
    cluster_id: str
    node_id: int
    directory_id: str
    was_clean: bool
    partitions: tuple[FoundPartition, ...]
    # What Kafka had not finished: a partition on its way from another directory, or a stray.
    leftovers: tuple[str, ...]


def survey(fs: FileSystem, paths: Sequence[Path]) -> tuple[FoundDirectory, ...]:
    """Look at log directories. Raises AdoptionError for what is none, and StorageError."""
    return tuple(_directory(fs, path) for path in paths)


def read_owner(fs: FileSystem, path: Path) -> tuple[str, int, str]:
    """Return the cluster id, node id and directory id ("" for none) of a log directory.

    Raises AdoptionError when it does not say.
    """
    if not fs.exists(path / META):
        raise AdoptionError(
            f"{path} is no log directory of Kafka: it has no {META}. Name what log.dirs "
            "in Kafka's server.properties names"
        )
    found = read_properties(fs, path / META)
    cluster_id, node_id = found.get("cluster.id"), found.get("node.id", found.get("broker.id"))
    if not cluster_id or not node_id or not node_id.isdecimal():
        raise AdoptionError(f"{path / META} has no cluster.id, or no node.id: restore it")
    return cluster_id, int(node_id), found.get("directory.id", "")


def _directory(fs: FileSystem, path: Path) -> FoundDirectory:
    cluster_id, node_id, directory_id = read_owner(fs, path)
    starts = _checkpoint(fs, path / checkpoints.LOG_START_OFFSETS)
    partitions = tuple(
        _partition(fs, path, key, topic_id, starts.get(key, 0))
        for key, topic_id in sorted(list_partitions(fs, path).items())
        if f"{key[0]}-{key[1]}" != METADATA_DIRECTORY
    )
    leftovers = tuple(name for name in fs.list(path) if name.endswith(("-future", "-stray")))
    was_clean = fs.exists(path / CLEAN_MARKER)
    return FoundDirectory(
        path, cluster_id, node_id, directory_id, was_clean, partitions, leftovers
    )


def _checkpoint(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(fs, path)
    except CorruptFile:
        return {}  # as the broker will when it starts


def _partition(
    fs: FileSystem, home: Path, key: TopicPartition, topic_id: bytes | None, start: int
) -> FoundPartition:
    topic, number = key
    path = home / f"{topic}-{number}"
    logs = segment_files(fs, path)
    bases = [base_offset_of(log.name) for log in logs]
    producers = _producers(fs, path)
    noted = path / PARTITION_METADATA
    return FoundPartition(
        path,
        topic,
        number,
        topic_id,
        sum(fs.size(log) for log in logs),
        max(start, bases[0]) if bases else start,
        _end_offset(fs, path, bases[-1]) if bases else start,
        _leader_epoch(fs, path),
        max((one.producer_id for one in producers), default=-1),
        sum(one.transaction_first_offset >= 0 for one in producers),
        fs.modified_ms(noted if fs.exists(noted) else path),
    )


def segment_files(fs: FileSystem, partition: Path) -> list[Path]:
    """Return the log files of a partition's segments, oldest first."""
    names = [name for name in fs.list(partition) if name.endswith(LOG)]
    return [partition / name for name in names if base_offset_of(name) >= 0]


def _end_offset(fs: FileSystem, partition: Path, base: int) -> int | None:
    """Find the offset after the last batch, from where the index ends; None for a torn end."""
    path = partition / (file_name(base) + LOG)
    file = fs.open(path)
    indexed = OffsetIndex(fs, partition / (file_name(base) + INDEX), base).last()
    end = base
    try:
        for _, _, last_offset, _ in walk(file, path, indexed[1] if indexed else 0, file.size()):
            end = last_offset + 1
    except CorruptFile:
        return None
    return end


def _leader_epoch(fs: FileSystem, partition: Path) -> int:
    epochs = LeaderEpochs(fs, partition)
    try:
        epochs.load()
    except CorruptFile:
        return -1
    return epochs.latest


def _producers(fs: FileSystem, partition: Path) -> ProducerStates:
    """Read the newest producer snapshot; a damaged one knows nobody."""
    producers = ProducerStates(fs, partition)
    with contextlib.suppress(CorruptFile):
        for offset in producers.snapshot_offsets()[-1:]:
            producers.read_snapshot(offset)
    return producers
