"""Surveys the log directories that Kafka has written, without changing them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from odradek.broker.adoption.errors import AdoptionError
from odradek.dataclass import dataclass
from odradek.storage import checkpoints
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.directory import CLEAN_MARKER, METADATA_DIRECTORY
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.errors import CorruptFile
from odradek.storage.exchange import base_offset_of
from odradek.storage.files import FileSystem
from odradek.storage.index import OffsetIndex
from odradek.storage.meta_properties import META, read_properties
from odradek.storage.partition_directories import (
    PARTITION_METADATA,
    list_partitions,
    partition_keys,
)
from odradek.storage.producers import ProducerStates
from odradek.storage.scan import walk
from odradek.storage.segment import INDEX, LOG, file_name

_NODE_ID = re.compile(r"[0-9]{1,10}")
_INT32_MAX = 2**31 - 1
# Kafka creates ids of 22 characters, and accepts others.
_CLUSTER_ID_MAX = 255


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition's directory; `end_offset` is None where the log's last batch is incomplete."""

    path: Path
    topic: str
    number: int
    topic_id: bytes | None
    size_bytes: int
    start_offset: int
    end_offset: int | None
    leader_epoch: int
    # From its newest producer snapshot: the largest id (-1 for none), the open transactions.
    producer_id_max: int
    open_transactions: int
    # When the directory was created: the time of its file with the topic's id, or its own.
    created_ms: int
    # Why the partition cannot be taken over; then nothing else was read.
    flaw: str | None = None


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A log directory: its cluster and node, and its partitions."""

    path: Path
    cluster_id: str
    node_id: int
    directory_id: str
    was_clean: bool
    partitions: tuple[FoundPartition, ...]
    # Names of unfinished directories: partitions that Kafka was moving here, and strays.
    leftovers: tuple[str, ...]


def survey(fs: FileSystem, paths: Sequence[Path]) -> tuple[FoundDirectory, ...]:
    """Survey log directories. Raises AdoptionError when one is not Kafka's, and StorageError."""
    return tuple(_directory(fs, path) for path in paths)


def read_owner(fs: FileSystem, path: Path) -> tuple[str, int, str]:
    """Return the cluster id, node id and directory id ("" for none) of a log directory.

    Raises AdoptionError when its file does not contain them.
    """
    if not fs.exists(path / META):
        raise AdoptionError(
            f"{path} is not a log directory of Kafka: it has no {META}. Name the directories of "
            "log.dirs in Kafka's server.properties"
        )
    _check_regular(fs, path / META)
    found = read_properties(fs, path / META)
    cluster_id, node_id = found.get("cluster.id"), found.get("node.id", found.get("broker.id"))
    if not cluster_id or len(cluster_id) > _CLUSTER_ID_MAX or not _is_node_id(node_id):
        raise AdoptionError(f"{path / META} has no cluster.id, or no node.id: restore it")
    assert node_id is not None
    return cluster_id, int(node_id), found.get("directory.id", "")


def _is_node_id(text: str | None) -> bool:
    return text is not None and _NODE_ID.fullmatch(text) is not None and int(text) <= _INT32_MAX


def _check_regular(fs: FileSystem, path: Path) -> None:
    """Raise AdoptionError for a file of a log directory that is a link, a FIFO or a device."""
    if fs.exists(path) and not fs.is_regular(path):
        raise AdoptionError(f"{path} is not a regular file: put the file itself in its place")


def _directory(fs: FileSystem, path: Path) -> FoundDirectory:
    cluster_id, node_id, directory_id = read_owner(fs, path)
    for name in (checkpoints.LOG_START_OFFSETS, CLEAN_MARKER):
        _check_regular(fs, path / name)
    starts = _checkpoint(fs, path / checkpoints.LOG_START_OFFSETS)
    flaws = {
        key: _flaw(fs, path / f"{key[0]}-{key[1]}")
        for key in partition_keys(fs, path)
        if f"{key[0]}-{key[1]}" != METADATA_DIRECTORY
    }
    topic_ids = list_partitions(fs, path, [key for key, flaw in flaws.items() if flaw is None])
    partitions = tuple(
        _partition(fs, path, key, topic_ids[key], starts.get(key, 0))
        if flaw is None
        else FoundPartition(
            path / f"{key[0]}-{key[1]}", *key, None, 0, 0, None, -1, -1, 0, 0, flaw
        )
        for key, flaw in sorted(flaws.items(), key=lambda one: one[0])
    )
    leftovers = tuple(name for name in fs.list(path) if name.endswith(("-future", "-stray")))
    was_clean = fs.exists(path / CLEAN_MARKER)
    return FoundDirectory(
        path, cluster_id, node_id, directory_id, was_clean, partitions, leftovers
    )


def _flaw(fs: FileSystem, partition: Path) -> str | None:
    """Return why a partition's directory is left alone: it has files that are not regular.

    No file is opened, and no link followed: a link may lead to somebody else's files, which would
    be written and deleted as those of the partition, and a FIFO makes its reader wait.
    """
    if fs.is_link(partition):
        return f"{partition} is a symbolic link: move the directory itself here"
    for name in fs.list(partition):
        if not fs.is_regular(partition / name):
            return f"{partition / name} is not a regular file: move it away"
    return None


def _checkpoint(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(fs, path)
    except CorruptFile:
        return {}  # as the broker does when it starts


def _partition(
    fs: FileSystem, home: Path, key: TopicPartition, topic_id: bytes | None, start: int
) -> FoundPartition:
    topic, number = key
    path = home / f"{topic}-{number}"
    logs = segment_files(fs, path)
    bases = [base_offset_of(log.name) for log in logs]
    producer_id_max, open_transactions = _producers(fs, path)
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
        producer_id_max,
        open_transactions,
        fs.modified_ms(noted if fs.exists(noted) else path),
    )


def segment_files(fs: FileSystem, partition: Path) -> list[Path]:
    """Return the log files of a partition's segments, oldest first."""
    names = [name for name in fs.list(partition) if name.endswith(LOG)]
    return [partition / name for name in names if base_offset_of(name) >= 0]


def _end_offset(fs: FileSystem, partition: Path, base: int) -> int | None:
    """Find the offset after the last batch, beginning at the index's end; None for a torn log."""
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


def _producers(fs: FileSystem, partition: Path) -> tuple[int, int]:
    """Read the newest producer snapshot: the largest id, and the number of open transactions.

    Returns (-1, 0) for a damaged snapshot.
    """
    producers = ProducerStates(fs, partition)
    with contextlib.suppress(CorruptFile):
        for offset in producers.snapshot_offsets()[-1:]:
            return producers.count_snapshot(offset)
    return -1, 0
