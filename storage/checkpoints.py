"""Checkpoint files: one offset per partition, in Kafka's text format.

    0                          version
    2                          count of the lines that follow
    latest-product-price 0 6   topic, partition, offset
    orders 3 1042

Kafka keeps one of each kind per log directory (OffsetCheckpointFile): cleaner, recovery point,
log start offset and replication. A file is replaced whole and atomically.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem

CLEANER_OFFSETS = "cleaner-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
# Odradek's own, in the same format: the leader epochs from which logs continue. The file exists
# from the adoption of Kafka's data, or the export from a catalog, to the end of the first run.
ADOPTED_EPOCHS = "odradek-adopted-epoch-checkpoint"

_VERSION = "0"
# Room for the lines of a quarter of a million partitions with the longest names.
_SIZE_MAX = 64 << 20
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LeftLog:
    """The state in which a process leaves a log to another one.

    The offsets are lower bounds; `is_clean` says that the log was closed, and not used since.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    cleaner_offset: int | None = None
    is_clean: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The contents of the checkpoint files at one moment; later ones have a higher number."""

    number: int
    offsets: Mapping[str, Mapping[TopicPartition, int]]  # by the file's name


def combine(
    recovery_points: Mapping[TopicPartition, int],
    start_offsets: Mapping[TopicPartition, int],
    cleaner_offsets: Mapping[TopicPartition, int],
    *,
    is_clean: bool,
) -> dict[TopicPartition, LeftLog]:
    """Return the states of logs by the offsets in checkpoints."""
    return {
        key: LeftLog(
            recovery_points.get(key, 0),
            start_offsets.get(key, 0),
            cleaner_offsets.get(key),
            is_clean and key in recovery_points,
        )
        for key in (recovery_points.keys() | start_offsets.keys() | cleaner_offsets.keys())
    }


def write_offsets(fs: FileSystem, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {number} {offset}" for (topic, number), offset in offsets.items()]
    fs.write_atomically(path, ("\n".join(lines) + "\n").encode())


def read_offsets(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    """Read a checkpoint file; a missing file counts as empty.

    Raises CorruptFile for a file that is not whole.
    """
    if not fs.exists(path):
        return {}
    lines = read_lines(fs, path, _VERSION)
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, start=3):
        try:
            topic, *numbers = line.split()
            partition, offset = map(int, numbers)
            if not (0 <= partition <= _INT32_MAX and 0 <= offset <= _INT64_MAX):
                raise ValueError
        except ValueError:
            raise CorruptFile(path, number, "expected 'topic partition offset'") from None
        offsets[topic, partition] = offset
    return offsets


def read_lines(fs: FileSystem, path: Path, version: str) -> list[str]:
    """Read the entries of a text checkpoint: version, count, then as many lines.

    Raises CorruptFile. Its position is the number of a line, or of a byte that is not text.
    """
    try:
        lines = fs.read_bytes(path, _SIZE_MAX).decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(path, error.start, "not text") from error
    if not lines:
        return []  # as in Kafka, whose cleaner's checkpoint begins as an empty file
    if len(lines) < 2 or lines[0] != version:
        raise CorruptFile(path, 1, f"expected version {version} and a count")
    entries = [line for line in lines[2:] if line]
    if lines[1] != str(len(entries)):
        raise CorruptFile(path, 2, f"expected {lines[1]} entries, found {len(entries)}")
    return entries
