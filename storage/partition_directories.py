"""The directories of partitions in a log directory: their names, and the topic id in each.

    orders-0/                          a partition: topic, dash, number
      partition.metadata               the topic's id
    orders-1.2f0c…-delete/             a deleted partition, to be removed
    orders-2.81d7…-future/             an unfinished copy of a partition (storage.moving)
"""

from __future__ import annotations

import base64
import logging
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from odradek.config.printable import printable
from odradek.protocol.wire import encode_uuid
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"

_PARTITION_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]*)")
DELETE_SUFFIX = "-delete"
_FUTURE_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]*)\.[0-9a-f]{32}-future")
_NAME_BYTES_MAX = 255  # for a file's name, on the file systems in use
# partition.metadata has two short lines.
_SMALL_BYTES_MAX = 64 << 10
_PARTITION_MAX = 2**31 - 1
_TOPIC_ID = re.compile(r"topic_id:\s*([A-Za-z0-9_-]{22})\s*")


def deleted_name(directory: Path) -> str:
    """Return a new name for a directory that is no longer in use, to be removed."""
    # Cut as in Kafka: the longest topic name leaves no room for the suffix.
    suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
    return directory.name[: _NAME_BYTES_MAX - len(suffix)] + suffix


def partition_keys(fs: FileSystem, path: Path) -> list[TopicPartition]:
    """Return the partitions that a log directory has directories for."""
    matches = (_PARTITION_NAME.fullmatch(name) for name in fs.list(path))
    keys = [(one["topic"], int(one["partition"])) for one in matches if one]
    return [
        (topic, number)
        for topic, number in keys
        if number <= _PARTITION_MAX and fs.is_directory(path / f"{topic}-{number}")
    ]


def list_partitions(
    fs: FileSystem, path: Path, keys: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, bytes | None]:
    """Return the partitions that a log directory holds, with the topic id noted in each.

    With `keys`, only those partitions.
    """
    wanted = partition_keys(fs, path) if keys is None else keys
    return {
        key: read_topic_id(fs, path / f"{key[0]}-{key[1]}" / PARTITION_METADATA)
        for key in wanted
    }


def list_futures(fs: FileSystem, path: Path) -> dict[str, TopicPartition]:
    """Return the names of the unfinished copies in a log directory, with their partitions."""
    matches = (_FUTURE_NAME.fullmatch(name) for name in fs.list(path))
    return {one[0]: (one["topic"], int(one["partition"])) for one in matches if one}


def future_name(topic: str, partition: int) -> str:
    """Return a new name for an unfinished copy."""
    return f"{topic}-{partition}.{uuid.uuid4().hex}-future"


def has_name_for_future(topic: str, partition: int) -> bool:
    """Return whether the file system allows the name of a partition's copy."""
    return len(future_name(topic, partition)) <= _NAME_BYTES_MAX


def begin_topic_id(fs: FileSystem, directory: Path, topic_id: bytes) -> None:
    """Write the topic id into the directory of a new log, whose first flush makes it durable."""
    fs.write_bytes(directory / PARTITION_METADATA, _topic_id_text(topic_id))


def note_topic_id(fs: FileSystem, directory: Path, topic_id: bytes) -> None:
    """Write the topic id into a partition's directory; a file that differs is repaired."""
    path = directory / PARTITION_METADATA
    text = _topic_id_text(topic_id)
    if fs.exists(path):
        found = fs.read_bytes(path)
        if found.strip() == text.strip():  # Kafka ends it without a newline
            return
        damage = CorruptFile.differing(path, found, text, "it is not as it was written")
        logger.warning("repaired a damaged file: %s", damage)
    fs.write_atomically(path, text)


def _topic_id_text(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def read_topic_id(fs: FileSystem, path: Path) -> bytes | None:
    """Return the topic id in a partition.metadata, None if there is none."""
    if not fs.exists(path):
        return None
    try:
        lines = fs.read_bytes(path, _SMALL_BYTES_MAX).decode(errors="replace").splitlines()
    except CorruptFile as damage:  # larger than it can be
        logger.warning("found damage: %s", printable(str(damage)))
        return None
    for line in lines:
        match = _TOPIC_ID.fullmatch(line)
        if match:
            return base64.urlsafe_b64decode(match[1] + "==")
    lacking = CorruptFile(path, 0, "it has no topic id")
    logger.warning("found damage: %s", printable(str(lacking)))
    return None
