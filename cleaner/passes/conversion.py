"""Converts messages of magic 0 and 1 to batches of magic 2, which a cleaning can work on.

Kafka 4.3's cleaner also writes the messages it keeps in the new format: a compacted log loses its
old formats at its first cleaning, and its tombstones get their delete horizon.

Kafka gives each message outside a wrapper a batch of its own, whose header makes it 43 bytes
larger than before. Here consecutive messages share a batch, so that nothing grows.
"""

from __future__ import annotations

from pathlib import Path

from odradek.protocol.batches import LOG_OVERHEAD, MAGIC, CrcMismatch, Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import NO_LEADER_EPOCH, decode_entry, read_entry, stored_crc
from odradek.storage.errors import CorruptFile

_LENGTH_POSITION, _MAGIC_POSITION = 8, 16
# Messages that share a batch: as many as a producer puts into one by default (batch.size).
_SHARED_BYTES = 16 * 1024


def is_old_format(data: bytes, position: int) -> bool:
    """Return whether an entry of magic 0 or 1 begins at a position, by its magic alone."""
    return position + _MAGIC_POSITION < len(data) and data[position + _MAGIC_POSITION] < MAGIC


def convert_entries(
    data: bytes, start: int, path: Path, data_position: int, max_decompressed_bytes: int
) -> tuple[bytes, int]:
    """Convert consecutive entries: return them as batches, and the end of the last entry.

    Stops before a batch of magic 2, and before an entry that is cut off. `data` begins at
    `data_position` of the file. Raises CorruptFile.
    """
    batches: list[bytes] = []
    position = shared_start = start
    shared: list[Record] = []
    view = memoryview(data)
    try:
        while is_old_format(data, position):
            end = position + _size(data, position)
            if end > len(data):
                break
            header = read_entry(data, position)
            if stored_crc(header, view[position:end]) != header.crc:
                raise CrcMismatch("a message's CRC does not match its bytes")
            records = decode_entry(data, position, max_decompressed_bytes)
            # A batch has one append time.
            can_share = header.codec == Codec.NONE and not header.is_log_append_time
            if shared and not (can_share and end - shared_start <= _SHARED_BYTES):
                batches.append(_batch(shared))
                shared = []
            if can_share:
                shared_start = shared_start if shared else position
                shared += records
            else:
                batches.append(_batch(records, header.codec, header.is_log_append_time))
            position = end
        if shared:
            batches.append(_batch(shared))
    except (ProtocolError, ValueError) as error:
        raise CorruptFile(path, data_position + position, str(error)) from error
    return b"".join(batches), position


def _batch(
    records: list[Record], codec: Codec = Codec.NONE, is_log_append_time: bool = False
) -> bytes:
    return encode_batch(
        records,
        base_offset=records[0].offset,
        codec=codec,
        log_append_time=is_log_append_time,
        leader_epoch=NO_LEADER_EPOCH,
    )


def _size(data: bytes, position: int) -> int:
    """Return the size that an entry states; its head may be cut off after the magic."""
    length = data[position + _LENGTH_POSITION : position + LOG_OVERHEAD]
    return int.from_bytes(length, "big", signed=True) + LOG_OVERHEAD
