"""The metadata log of a Kafka cluster, as a controller or broker left it: read, never written.

    __cluster_metadata-0/
      00000000000000000000.log                     record batches, as in any log
      00000000000000008192-0000000003.checkpoint   a snapshot: the state after the records before
                                                   offset 8192, the last of which has epoch 3

A snapshot's batches are a log of their own. Its last record is a control record, the footer: a
snapshot without it was never finished. Controllers group several records as a transaction
(KIP-868): the records of one that has not ended, or was aborted, do not count.

Nothing on the disk says up to which offset the controllers agreed (the high watermark). A single
controller has agreed to all of its log, so every intact record there counts. One of several
controllers may have records at the very end that the others never got; it writes them to the
others all the same when it is the first to lead again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import BatchHeader, Record, batch_crc
from odradek.protocol.compiler import decode
from odradek.protocol.compression import Codec
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.metadata_records import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    END_TRANSACTION,
    FRAME_VERSION,
    PASSED_OVER,
)
from odradek.protocol.schema import info_of
from odradek.protocol.wire import read_uvarint
from odradek.storage.errors import CorruptFile, NewerFormat
from odradek.storage.exchange import base_offset_of
from odradek.storage.files import FileSystem
from odradek.storage.scan import Batches
from odradek.storage.segment import LOG

_SNAPSHOT_NAME = re.compile(r"(?P<end>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")
_DECLARED = {info_of(cls).key: cls for cls in message_classes("MetadataRecords")}


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """A record of the metadata log, and the time it was written: None in a snapshot."""

    message: object
    written_ms: int | None


class MetadataLog:
    """The metadata in one directory. Damage is found when it is read."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs, self._directory = fs, directory
        # Bytes at the log's end that are no whole batch: the last write of a killed process.
        self.torn_bytes = 0

    def read(self) -> Iterator[MetadataEntry]:
        """Yield every record that counts, oldest first.

        Raises CorruptFile for damage other than a torn end, and NewerFormat for records that a
        newer Kafka has written.
        """
        held: list[MetadataEntry] | None = None  # since a transaction began
        for key, entry in self._decoded():
            if key == BEGIN_TRANSACTION:
                held = []
            elif key == ABORT_TRANSACTION:
                held = None
            elif key == END_TRANSACTION:
                yield from held or ()
                held = None
            elif entry is not None and held is not None:
                held.append(entry)
            elif entry is not None:
                yield entry

    def _decoded(self) -> Iterator[tuple[int, MetadataEntry | None]]:
        start, snapshot = self._newest_snapshot()
        for record in snapshot:
            yield _decode(record, self._directory, None)
        for record in self._log_records(start):
            yield _decode(record, self._directory, record.timestamp)

    def _newest_snapshot(self) -> tuple[int, list[Record]]:
        """Return the offset after the newest finished snapshot, and its records."""
        for name in reversed(self._fs.list(self._directory)):
            found = _SNAPSHOT_NAME.fullmatch(name)
            if found is None:
                continue
            records: list[Record] = []
            last_control = ControlType.UNKNOWN
            for header, data in self._intact(self._directory / name):
                batch = self._records(data)
                if header.is_control:
                    last_control = decode_control(batch[-1]).type if batch else last_control
                else:
                    records += batch
            if last_control is ControlType.SNAPSHOT_FOOTER:
                self.torn_bytes = 0
                return int(found["end"]), records
        self.torn_bytes = 0
        return 0, []

    def _log_records(self, start: int) -> Iterator[Record]:
        """Yield the records of the log from an offset on."""
        names = [name for name in self._fs.list(self._directory) if name.endswith(LOG)]
        expected = start
        for name in names:
            path = self._directory / name
            if self.torn_bytes:
                raise CorruptFile(path, 0, "the segment before it does not end with a batch")
            if base_offset_of(name) > expected:
                cause = f"offsets {expected} to {base_offset_of(name) - 1} are in no file"
                raise CorruptFile(path, 0, cause)
            for header, data in self._intact(path):
                expected = max(expected, header.next_offset)
                if not header.is_control and header.last_offset >= start:
                    yield from (one for one in self._records(data) if one.offset >= start)
        if expected == 0:
            raise CorruptFile(self._directory, 0, "there is neither a log nor a snapshot")

    def _records(self, data: memoryview) -> list[Record]:
        try:
            return decode_records(data)
        except ProtocolError as error:
            raise CorruptFile(self._directory, 0, f"a batch without records: {error}") from error

    def _intact(self, path: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a file up to the first that is not intact."""
        file = self._fs.open(path)
        batches = Batches(file, path, file.size())
        end = 0
        for position, header, data in batches.read():
            if batch_crc(data, 0, len(data)) != header.crc:
                break
            # A controller compresses nothing, and some bytes could unpack to millions of records.
            if header.codec is not Codec.NONE:
                raise CorruptFile(path, position, f"a batch compressed by {header.codec.label}")
            end = position + len(data)
            yield header, data
        self.torn_bytes = batches.size_bytes - end


def _decode(
    record: Record, directory: Path, written_ms: int | None
) -> tuple[int, MetadataEntry | None]:
    """Return a record's key, and its message unless the key alone is enough."""
    view = memoryview(record.value or b"")
    try:
        frame_version, position = read_uvarint(view, 0)
        key, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
        if key in PASSED_OVER or BEGIN_TRANSACTION <= key <= ABORT_TRANSACTION:
            return key, None
        declared = _DECLARED.get(key)
        if (
            frame_version != FRAME_VERSION
            or declared is None
            or version not in info_of(declared).versions
        ):
            raise NewerFormat(
                f"{directory} has a record of type {key}, version {version} at offset "
                f"{record.offset}: it is from a Kafka newer than 4.3, whose metadata this release "
                "does not read"
            )
        return key, MetadataEntry(decode(declared, version, view, position), written_ms)
    except (ProtocolError, IndexError) as error:
        cause = f"no record of metadata at offset {record.offset}: {error}"
        raise CorruptFile(directory, 0, cause) from error
