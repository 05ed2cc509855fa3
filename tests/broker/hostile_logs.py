"""Logs that hold little on the disk and very much once it is unpacked, below a broker's checks.

What a producer may send is bounded elsewhere. What is stored may be older than a bound, or come
from another broker: whoever reads it must not rely on them.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.broker.composition import Broker
from odradek.protocol.batches import patch_base_offset_and_epoch, read_header
from odradek.protocol.compression import Codec
from odradek.protocol.records_plain import encode_record
from odradek.storage.log import Log
from tests.broker.live import create
from tests.broker.raw_batches import RawBatch, RawRecord, header_bytes

MIB = 1 << 20
KEY = "k"
HEADER_COUNT = 4_000_000
RECORD_COUNT = 1_000_000
_LONG_DELTA = 1 << 13  # takes three bytes as a varint, as all do up to RECORD_COUNT
WIDE_PARTITIONS = 12
# What one batch of any of these logs unpacks to, at most.
UNPACKED_BYTES_MAX = 64 * MIB
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


def _headers() -> Iterator[bytes]:
    yield _packed([RawRecord(header_count=HEADER_COUNT, headers=b"\x00\x01" * HEADER_COUNT)])


def _header_names() -> Iterator[bytes]:
    headers = header_bytes((b"n" * (20 * MIB), bytes(20 * MIB)))
    yield _packed([RawRecord(header_count=1, headers=headers)])


def _large_values() -> Iterator[bytes]:
    """Values of which each byte takes six in JSON, in more batches than one request looks at."""
    batch = _packed([RawRecord(value=bytes(63 * MIB))])
    for _ in range(10):
        yield batch


def _one_value() -> Iterator[bytes]:
    yield _packed([RawRecord(value=bytes(2 * MIB))])


def _values() -> Iterator[bytes]:
    """Records that are not cut as values, and together are more than an answer may hold."""
    for _ in range(5):
        yield _packed([RawRecord(key=b"\1" * 4000, value=b"\1" * 4000)] * 1000)


def _tiny_records() -> Iterator[bytes]:
    """Records of which each has what is looked for in it, and none as its key."""
    section = _tiny_section()
    batch = RawBatch(section, Codec.ZSTD, count=RECORD_COUNT, last_offset_delta=RECORD_COUNT - 1)
    yield batch.encode()


def _tiny_section() -> bytes:
    """Return what encode_record makes of them, with less work."""
    parts = [encode_record(at, 0, b"k%d" % at, b"") for at in range(_LONG_DELTA)]
    for at in range(_LONG_DELTA, RECORD_COUNT):
        key = b"k%d" % at
        # Sizes as varints are doubled; eight bytes are beside the key.
        parts.append(
            b"%c\0\0%c%c%c%c%b\0\0"
            % (
                len(key) + 8 << 1,
                at << 1 & 0x7F | 0x80,
                at >> 6 & 0x7F | 0x80,
                at >> 13,
                len(key) << 1,
                key,
            )
        )
    return b"".join(parts)


def _large_keys() -> Iterator[bytes]:
    for first in range(0, 300, 60):
        yield _packed([RawRecord(key=b"%7d" % (first + at) * (MIB // 7)) for at in range(60)])


def _small_batches() -> Iterator[bytes]:
    batch = RawBatch().encode()
    for _ in range(50_000):
        yield batch


LOGS = {
    "headers": _headers,
    "header-names": _header_names,
    "large-values": _large_values,
    "one-value": _one_value,
    "values": _values,
    "tiny-records": _tiny_records,
    "large-keys": _large_keys,
    "small-batches": _small_batches,
}
WIDE = "wide"
TOPICS = (*LOGS, WIDE)


async def write_all(broker: Broker) -> None:
    """Create the topics, and write their logs below the checks."""
    for name, batches in LOGS.items():
        (log,) = (await create(broker, name, configs=_COMPACT)).logs
        for batch in batches():
            _append(log, batch)
        log.roll(broker.clock.now_ms())  # what is sealed can be cleaned
    batch = _packed([RawRecord(value=bytes(63 * MIB))])
    for log in (await create(broker, WIDE, WIDE_PARTITIONS, _COMPACT)).logs:
        _append(log, batch)


def _packed(records: list[RawRecord]) -> bytes:
    return RawBatch(records, Codec.ZSTD).encode()


def _append(log: Log, batch: bytes) -> None:
    patched = bytearray(batch)
    patch_base_offset_and_epoch(patched, 0, log.log_end_offset, 0)
    header = read_header(patched)
    log.active.append(
        (patched,),
        len(patched),
        header.last_offset,
        header.max_timestamp,
        log.config.index_interval_bytes,
    )
    log.log_end_offset = header.next_offset


