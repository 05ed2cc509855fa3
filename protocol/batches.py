"""Record batches of magic 2: the unit that producers send, logs store and consumers read.

A batch goes from socket to file unchanged, except for two fields that the CRC does not cover: the
broker reads its header, checks its CRC, and writes these fields. All integers are big endian:

     0 baseOffset       i64    the first offset; assigned by the broker
     8 batchLength      i32    bytes after this field: the batch's size less LOG_OVERHEAD
    12 leaderEpoch      i32    assigned by the broker
    16 magic            i8     2; magic 0 and 1 are older formats with another layout
    17 crc              u32    CRC-32C of all bytes after it
    21 attributes       i16    drawn below
    23 lastOffsetDelta  i32    last offset less base offset; gaps are allowed after cleaning
    27 baseTimestamp    i64    the first record's, ms; or the delete horizon
    35 maxTimestamp     i64    ms; every record's timestamp when the log append time is used
    43 producerId       i64    -1 for none
    51 producerEpoch    i16    -1 for none
    53 baseSequence     i32    -1 for none; the sequence of the record at the base offset
    57 count            i32    records in the batch, 0 when all are cleaned away
    61 records                 drawn in protocol/records_plain.py; compressed as a whole

    attributes: | 0 (9 bits) | delete horizon | control | transactional | append time | codec (3) |

Source: Kafka's DefaultRecordBatch and MemoryRecordsBuilder; KIP-98 (magic 2), KIP-534 (delete
horizon).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Buffer, Codec, compress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records_plain import encode_record, wrap_int64

MAGIC = 2
LOG_OVERHEAD = 12  # not in batchLength: the base offset and batchLength itself
HEADER_SIZE = 61
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

# For hot paths: unpack once, then take fields of the tuple by these indexes.
HEADER = struct.Struct(">qiibIhiqqqhii")
(
    BASE_OFFSET,
    LENGTH,
    LEADER_EPOCH,
    MAGIC_BYTE,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    COUNT,
) = range(13)

CODEC_MASK = 0x07
_CODEC_MAX = int(Codec.ZSTD)
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
_KNOWN_ATTRIBUTES = 0x7F

_LENGTH_POSITION = 8
_LEADER_EPOCH_POSITION = 12
_MAGIC_POSITION = 16
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21  # the first byte that the CRC covers
LOW_ATTRIBUTES_POSITION = 22  # the byte with the codec and the kind
_MAX_TIMESTAMP_POSITION = 35
_INT32_MAX = 0x7FFFFFFF
_NOT_COMPUTED = 0  # a field of a header that is computed when it is encoded

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I16 = struct.Struct(">h")


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class CorruptBatch(ProtocolError):
    """A batch whose header is cut off or impossible (Kafka's CORRUPT_MESSAGE)."""


class CrcMismatch(CorruptBatch):
    """A batch whose bytes do not match its CRC."""


class UnsupportedMagic(ProtocolError):
    """A message of magic 0 or 1, which has another layout."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"magic {magic} where only batches of magic {MAGIC} are read")
        self.magic = magic


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A batch's header, field by field as drawn above."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, whether or not its record is still there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether max_timestamp is the timestamp of all records."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are Kafka's own, such as transaction markers."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp is the time from which tombstones and markers may go."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the record at the last offset; -1 without one."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


@dataclass(frozen=True, slots=True)
class Record:
    """A record. Its timestamp is in ms, -1 for none; a null value makes it a tombstone.

    Header keys are text on the wire; bytes that are not UTF-8 survive as surrogate escapes.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence, which starts over at 0 after 2^31 - 1."""
    return (sequence + increment) & _INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`; its records need not be in the buffer.

    Raises UnsupportedMagic for magic 0 and 1, CorruptBatch when the header is cut off or
    impossible. The CRC is not checked.
    """
    if len(buffer) - position < HEADER_SIZE:
        _check_magic(buffer, position)
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch's header")
    header = BatchHeader(*HEADER.unpack_from(buffer, position))
    if (
        header.magic != MAGIC
        or header.length < _LENGTH_MIN
        or header.last_offset_delta < 0
        or header.count < 0
        or header.attributes & CODEC_MASK > _CODEC_MAX
    ):
        _check_magic(buffer, position)
        raise CorruptBatch(f"no batch has such a header: {header}")
    return header


def iterate_batches(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each whole batch between `start` and `end`.

    Stops before a batch that is cut off by the end, as fetched data often is. Raises as
    read_header does.
    """
    if end is None:
        end = len(buffer)
    position = start
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        batch_end = position + LOG_OVERHEAD + header.length
        if batch_end > end:
            return
        yield position, header
        position = batch_end
    if end - position > _MAGIC_POSITION:
        _check_magic(buffer, position)


def batch_crc(buffer: Buffer, position: int, size: int) -> int:
    """Compute the CRC-32C that the batch of `size` bytes at `position` should have.

    The interpreter's lock is released for large batches (32 KiB and more).
    """
    covered = memoryview(buffer)[position + _ATTRIBUTES_POSITION : position + size]
    return crc32c(covered)


def check_crc(buffer: Buffer, position: int, size: int) -> None:
    """Raise CrcMismatch unless the batch of `size` bytes at `position` has the CRC it states."""
    stated = _U32.unpack_from(buffer, position + _CRC_POSITION)[0]
    computed = batch_crc(buffer, position, size)
    if stated != computed:
        raise CrcMismatch(f"the batch states CRC {stated:#010x} but has {computed:#010x}")


def patch_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Assign a batch its place in the log; the CRC covers neither field."""
    _I64.pack_into(buffer, position, base_offset)
    _I32.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def patch_max_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp: int, log_append_time: bool = False
) -> None:
    """Set a batch's maximum timestamp (ms), and compute its CRC again.

    With `log_append_time` it becomes the timestamp of each of its records. Attributes without
    a meaning are cleared (DefaultRecordBatch.setMaxTimestamp).
    """
    attributes = _I16.unpack_from(buffer, position + _ATTRIBUTES_POSITION)[0] & _KNOWN_ATTRIBUTES
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    _I16.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes)
    _I64.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp)
    size = _I32.unpack_from(buffer, position + _LENGTH_POSITION)[0] + LOG_OVERHEAD
    _U32.pack_into(buffer, position + _CRC_POSITION, batch_crc(buffer, position, size))


def patch_log_append_time(buffer: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Give all records of a batch the timestamp (ms) at which the broker appended them."""
    patch_max_timestamp(buffer, position, timestamp, log_append_time=True)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Encode records, in the order of their offsets, as one batch.

    `last_offset_delta` keeps the offsets of records removed from the end, and `max_timestamp`
    overrides the records' maximum. Raises ValueError for records that no batch can hold: none,
    or offsets that do not rise from `base_offset` on.
    """
    if not records:
        raise ValueError("a batch needs a record; empty_batch encodes one without")
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    section = _encode_section(records, base_offset, base_timestamp)
    last_delta = records[-1].offset - base_offset
    if last_offset_delta is None:
        last_offset_delta = last_delta
    if not last_delta <= last_offset_delta <= _INT32_MAX:
        raise ValueError(f"offsets up to {records[-1].offset} in a batch from {base_offset}")
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    if max_timestamp is None:
        max_timestamp = max(record.timestamp for record in records)
    header = BatchHeader(
        base_offset, _NOT_COMPUTED, leader_epoch, MAGIC, _NOT_COMPUTED, attributes,
        last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
        base_sequence, len(records),
    )  # fmt: skip
    return _encode(header, section if codec == Codec.NONE else compress(codec, section, level))


def empty_batch(header: BatchHeader) -> bytes:
    """Encode the rest of a batch whose records are all cleaned away.

    It keeps the offsets, the producer's state and the maximum timestamp
    (DefaultRecordBatch.writeEmptyHeader), and loses the codec and the delete horizon.
    """
    kept = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _encode(replace(header, attributes=kept, base_timestamp=NO_TIMESTAMP, count=0), b"")


def replace_section(header: BatchHeader, section: Buffer, codec: Codec) -> bytearray:
    """Encode a batch with another batch's header, but with records packed by another codec."""
    attributes = header.attributes & ~CODEC_MASK | codec
    return bytearray(_encode(replace(header, attributes=attributes), section))


def with_section(batch: Buffer, section: bytes) -> bytearray:
    """Encode a batch with another batch's header, its codec too, but with this section."""
    made = bytearray(batch[:HEADER_SIZE])
    made += section
    _I32.pack_into(made, _LENGTH_POSITION, len(made) - LOG_OVERHEAD)
    _U32.pack_into(made, _CRC_POSITION, crc32c(memoryview(made)[_ATTRIBUTES_POSITION:]))
    return made


def _check_magic(buffer: Buffer, position: int) -> None:
    """Raise UnsupportedMagic if the buffer has a magic byte of an older format."""
    if 0 <= position < len(buffer) - _MAGIC_POSITION:
        magic = buffer[position + _MAGIC_POSITION]
        if magic in (0, 1):
            raise UnsupportedMagic(magic)


def _encode(header: BatchHeader, section: Buffer) -> bytes:
    """Put a header before a section; its length and its CRC are computed."""
    batch = bytearray(
        HEADER.pack(
            header.base_offset, HEADER_SIZE - LOG_OVERHEAD + len(section), header.leader_epoch,
            MAGIC, _NOT_COMPUTED, header.attributes, header.last_offset_delta,
            header.base_timestamp, header.max_timestamp, header.producer_id,
            header.producer_epoch, header.base_sequence, header.count,
        )
    )  # fmt: skip
    batch += section
    _U32.pack_into(batch, _CRC_POSITION, batch_crc(batch, 0, len(batch)))
    return bytes(batch)


def _encode_section(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    last = base_offset - 1
    for record in records:
        if record.offset <= last:
            raise ValueError(f"offset {record.offset} where one above {last} must come")
        last = record.offset
        delta = wrap_int64(record.timestamp - base_timestamp)
        parts.append(
            encode_record(last - base_offset, delta, record.key, record.value, record.headers)
        )
    return b"".join(parts)
