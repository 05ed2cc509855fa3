"""meta.properties: the cluster and node that a log directory belongs to, in Kafka's format.

    version=1
    cluster.id=4L6g3nShT-eMCtK--X86sw
    node.id=1
    directory.id=Lg0cAwyzSRq8kQwLFIHb3w
    #crc32c=1b7c54a0                    Odradek's, over all before it: a comment to Kafka

The checksum distinguishes a file of another cluster, which is refused, from a damaged one, which
is repaired. A file that Kafka wrote gets its checksum when it is first read.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.protocol.wire import encode_uuid
from odradek.storage.errors import CorruptFile, UnknownDirectory
from odradek.storage.files import FileSystem

logger = logging.getLogger(__name__)

META = "meta.properties"

_VERSION, _CLUSTER, _NODE, _DIRECTORY = "version", "cluster.id", "node.id", "directory.id"
# The file has a line for each of a few properties.
_SIZE_MAX = 64 << 10
_KEYS = (_VERSION, _CLUSTER, _NODE, _DIRECTORY)
_SEAL = re.compile(rb"(?P<body>.*)#crc32c=(?P<crc>[0-9a-f]{8})\n", re.DOTALL)
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True)
class _Properties:
    """The contents of a file; `damage` is "" for a file that can be trusted."""

    values: Mapping[str, str]
    is_sealed: bool
    damage: str


def check_meta(fs: FileSystem, path: Path, cluster_id: str, node_id: int) -> None:
    """Refuse a directory of another cluster or node; write meta.properties into a new one.

    Raises UnknownDirectory. A damaged file is repaired, with a warning.
    """
    expected = {_CLUSTER: cluster_id, _NODE: str(node_id)}
    if not fs.exists(path):
        fs.write_atomically(path, _sealed(expected, {}))
        return
    data = fs.read_bytes(path, _SIZE_MAX)
    found = _parse(data)
    if not found.damage:
        for key, value in expected.items():
            if found.values[key] != value:
                raise UnknownDirectory(
                    f"{path} has {key}={found.values[key]}, this broker has {value}: "
                    "choose another log.dirs, or the node.id and cluster id that it belongs to"
                )
        if found.is_sealed:
            return
    intact = _sealed(expected, found.values)
    if found.damage:
        damage = CorruptFile.differing(path, data, intact, found.damage)
        logger.warning("repaired a damaged file: %s", damage)
    else:
        logger.info("added a checksum path=%s", path)
    fs.write_atomically(path, intact)


def read_cluster_id(fs: FileSystem, directory: Path) -> str | None:
    """Return the id of a log directory's cluster, None when no intact file names it."""
    if not fs.exists(directory / META):
        return None
    found = _parse(fs.read_bytes(directory / META, _SIZE_MAX))
    return None if found.damage else found.values[_CLUSTER]


def read_directory_id(fs: FileSystem, directory: Path) -> str:
    """Return the id of a log directory that is open, which no other directory has."""
    return _parse(fs.read_bytes(directory / META, _SIZE_MAX)).values[_DIRECTORY]


def read_properties(fs: FileSystem, path: Path) -> Mapping[str, str]:
    """Return the properties in a meta.properties file, damaged or not."""
    return _parse(fs.read_bytes(path, _SIZE_MAX)).values


def _parse(data: bytes) -> _Properties:
    seal = _SEAL.fullmatch(data)
    lines = data.decode(errors="replace").split("\n")
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] not in "#!")
    values = {key.strip(): value.strip() for key, value in pairs}
    damage = ""
    if seal:
        if crc32c(seal["body"]) != int(seal["crc"], 16):
            damage = "the checksum does not match"
    elif not data.endswith(b"\n") or lines[-2].split("=")[0].strip() not in _KEYS:
        # Kafka's files end with a property and a newline. In this one a value may have been cut
        # off, or the checksum's line is damaged.
        damage = "it does not end as it was written"
    missing = [key for key in (_VERSION, _CLUSTER, _NODE) if key not in values]
    if missing and not damage:
        damage = f"it has no {' and no '.join(missing)}"
    return _Properties(values, seal is not None, damage)


def _sealed(expected: Mapping[str, str], found: Mapping[str, str]) -> bytes:
    directory_id = found.get(_DIRECTORY, "")
    if not _UUID.fullmatch(directory_id):
        directory_id = encode_uuid(uuid.uuid4().bytes)
    values = {_VERSION: "1", **expected, _DIRECTORY: directory_id}
    body = "".join(f"{key}={value}\n" for key, value in values.items()).encode()
    return body + b"#crc32c=%08x\n" % crc32c(body)
