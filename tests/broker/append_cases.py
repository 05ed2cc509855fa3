"""Batches that a broker has to judge: one of each kind that is known to matter."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from functools import partial

from odradek.protocol.batches import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.compression import Codec, compress
from tests.broker.append_peers import Topics
from tests.broker.raw_batches import RawBatch, RawRecord, header_bytes, section

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
# Nothing may be compacted away, nor a segment roll by time, while batches are compared.
COMPACT = {"cleanup.policy": "compact", "min.compaction.lag.ms": "9000000000000"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
SMALL_BYTES = 200
TOPICS: Topics = {
    "plain": {},
    "compact": COMPACT,
    "both": {**COMPACT, "cleanup.policy": "compact,delete"},
    "stamped": STAMPED,
    "stamped-compact": {**COMPACT, **STAMPED},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip", "compression.gzip.level": "1"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4", "compression.lz4.level": "17"},
    "zstd": {"compression.type": "zstd", "compression.zstd.level": "5"},
    "zstd-stamped-compact": {"compression.type": "zstd", **COMPACT, **STAMPED},
    "gzip-compact": {"compression.type": "gzip", **COMPACT},
    "small": {"max.message.bytes": str(SMALL_BYTES)},
    "small-uncompressed": {
        "max.message.bytes": str(SMALL_BYTES), "compression.type": "uncompressed",
    },
    "tight": {
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    },
    "tight-compact": {
        **COMPACT,
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    },
    "segments": {"segment.bytes": str(1 << 20), "max.message.bytes": str(4 << 20)},
    "segments-uncompressed": {
        "segment.bytes": str(1 << 20),
        "max.message.bytes": str(4 << 20),
        "compression.type": "uncompressed",
    },
}  # fmt: skip

Batch = partial(RawBatch, base_timestamp=NOW_MS)
THREE = tuple(RawRecord(value=b"v%d" % at) for at in range(3))
GOOD = Batch(THREE).encode()
ALL_CODECS = tuple(Codec)
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
OVERLONG_ZERO = b"\x80\x80\x80\x80\x00"
TOO_LONG = b"\x80\x80\x80\x80\x80\x00"
UNENDING = b"\xff" * 12


def _envelopes() -> Mapping[str, bytes]:
    """What is wrong, or only unusual, around the records."""
    cases: dict[str, bytes] = {
        "nothing": b"",
        "good": GOOD,
        "two batches": GOOD + GOOD,
        "a batch and a byte": GOOD + b"\0",
        "a batch and 11 bytes": GOOD + bytes(11),
        "a batch and 12 bytes": GOOD + bytes(12),
        "a batch and 17 bytes": GOOD + bytes(17),
        "a batch and half of another": GOOD + GOOD[:40],
        "a damaged batch after a good one": GOOD + GOOD[:-1] + b"x",
        "a batch and one of magic 1": GOOD + Batch(THREE, magic=1).encode(),
        "empty": Batch(()).encode(),
        "empty with a count": Batch((), last_offset_delta=0, count=1).encode(),
        "count 0": Batch(THREE, count=0).encode(),
        "count 0, delta -1": Batch(THREE, count=0, last_offset_delta=-1).encode(),
        "base offset and delta that wrap": Batch(
            THREE, base_offset=INT64_MAX, last_offset_delta=2
        ).encode(),
        "base offset and a length of 48": Batch((), base_offset=1, length=48).encode(),
        "huge": Batch([RawRecord(value=bytes(2 << 20))]).encode(),
        "huge, compressed": Batch([RawRecord(value=bytes(2 << 20))], Codec.GZIP).encode(),
        "huger than anything": Batch([RawRecord(value=bytes(5 << 20))]).encode(),
        "just as large as may be": sized(SMALL_BYTES),
        "a byte larger than may be": sized(SMALL_BYTES + 1),
    }
    cases |= {f"cut to {size} bytes": GOOD[:size] for size in (1, 8, 11, 12, 16, 17, 18, 60, 61)}
    cases |= {f"cut by {by} bytes": GOOD[:-by] for by in (1, 5)}
    right = len(GOOD) - 12
    lengths = (INT32_MIN, -1, 0, 1, 4, 13, 14, 48, 49, right - 1, right + 1, 1 << 20, INT32_MAX)
    for wrong in lengths:
        cases[f"length {wrong}, {right} is right"] = Batch(THREE, length=wrong).encode()
    for magic in (-128, -1, 0, 1, 3, 127):
        cases[f"magic {magic}"] = Batch(THREE, magic=magic).encode()
    for codec in (*ALL_CODECS, 5, 6, 7):
        cases[f"of codec {codec}"] = Batch(
            THREE, codec, packed=None if codec in ALL_CODECS else b"packed"
        ).encode()
        cases[f"codec {codec} that it has not"] = Batch(
            THREE, codec, packed=section(THREE)
        ).encode()
        cases[f"codec {codec} of nothing"] = Batch(
            (), codec, packed=None if codec in ALL_CODECS else b""
        ).encode()
    return cases


def sized(size: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of that size."""
    for fill in range(size):
        made = Batch([RawRecord(value=bytes(fill))], codec).encode()
        if len(made) == size:
            return made
    raise ValueError(size)


def _headers() -> Mapping[str, bytes]:
    """One field of the header, its CRC right."""
    cases: dict[str, bytes] = {}
    for offset in (1, -1, 7, INT64_MAX, INT64_MIN):
        cases[f"base offset {offset}"] = Batch(THREE, base_offset=offset).encode()
    for epoch in (0, 5, -2, INT32_MAX):
        cases[f"leader epoch {epoch}"] = Batch(THREE, leader_epoch=epoch).encode()
    for crc in (0, 0xFFFFFFFF):
        cases[f"CRC {crc:x}"] = Batch(THREE, crc=crc).encode()
    for bit in range(3, 16):
        for kind in (Codec.NONE, Codec.ZSTD):
            made = Batch(THREE, kind, flags=1 << bit)
            cases[f"bit {bit}, {kind.label}"] = made.encode()
    late = Batch(THREE, flags=0x7F80, max_timestamp=0)
    cases["reserved bits and a wrong timestamp"] = late.encode()
    cases["everything set"] = Batch(
        THREE, flags=LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT,
        producer_id=1, producer_epoch=0, base_sequence=0,
    ).encode()  # fmt: skip
    cases["control and transactional"] = Batch(
        THREE, flags=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=1, producer_epoch=0, base_sequence=0,
    ).encode()  # fmt: skip
    for delta in (INT32_MIN, -1, 0, 1, 3, INT32_MAX):
        cases[f"last offset delta {delta}"] = Batch(THREE, last_offset_delta=delta).encode()
    for count in (INT32_MIN, -1, 1, 2, 4, INT32_MAX):
        cases[f"count {count}"] = Batch(THREE, count=count).encode()
        if count != INT32_MIN:
            consistent = Batch(THREE, count=count, last_offset_delta=count - 1)
            cases[f"count {count} and its delta"] = consistent.encode()
            for codec in ALL_CODECS[1:]:
                packed = Batch(THREE, codec, count=count, last_offset_delta=count - 1)
                cases[f"count {count} and its delta, {codec.label}"] = packed.encode()
    for name, at in TIMES.items():
        cases[f"base timestamp {name}"] = Batch(THREE, base_timestamp=at).encode()
        cases[f"max timestamp {name}"] = Batch(THREE, max_timestamp=at).encode()
        cases[f"max timestamp {name}, lz4"] = Batch(
            THREE, Codec.LZ4, max_timestamp=at
        ).encode()
    return cases


TIMES = {
    "-1": -1, "-2": -2, "0": 0, "1": 1, "largest": INT64_MAX, "smallest": INT64_MIN,
    "two hours ago": NOW_MS - 2 * HOUR_MS, "in two hours": NOW_MS + 2 * HOUR_MS,
    "half an hour ago": NOW_MS - HOUR_MS // 2, "in half an hour": NOW_MS + HOUR_MS // 2,
}  # fmt: skip


def _records() -> Mapping[str, bytes]:
    """One field of a record; each also compressed, which Kafka reads in another way."""
    shapes: dict[str, tuple[RawRecord, ...]] = {
        "no key": (RawRecord(key=None), RawRecord(), RawRecord(key=None)),
        "no key anywhere": (RawRecord(key=None),) * 3,
        "many without key": (RawRecord(key=None),) * 100,
        "empty key": (RawRecord(key=b""),),
        "empty value": (RawRecord(value=b""),),
        "no value": (RawRecord(value=None),),
        "nothing at all": (RawRecord(key=None, value=None),),
        "key of length -2": (RawRecord(key=None, key_length=-2),),
        "key of length -2^31": (RawRecord(key=None, key_length=INT32_MIN),),
        "value of length -2": (RawRecord(value=None, value_length=-2),),
        "key longer than the record": (RawRecord(key_length=100), RawRecord()),
        "key into the next record": (RawRecord(key_length=8), RawRecord()),
        "value longer than the record": (RawRecord(value_length=100), RawRecord()),
        "value into the next record": (RawRecord(value_length=5), RawRecord()),
        "largest key length": (RawRecord(key_length=INT32_MAX), RawRecord()),
        "largest value length": (RawRecord(value_length=INT32_MAX), RawRecord()),
        "attributes": (RawRecord(attributes=1), RawRecord(attributes=0xFF), RawRecord()),
        "codec in a record": tuple(RawRecord(attributes=at) for at in range(8)),
        "a tail": (RawRecord(tail=b"\0"), RawRecord()),
        "negative offset delta": (RawRecord(offset_delta=-1), RawRecord()),
        "offset deltas of 0": (RawRecord(offset_delta=0),) * 3,
        "offset deltas with a gap": (RawRecord(offset_delta=0), RawRecord(offset_delta=5)),
        "offset deltas backwards": tuple(RawRecord(offset_delta=2 - at) for at in range(3)),
        "offset deltas from 1": tuple(RawRecord(offset_delta=1 + at) for at in range(3)),
        "largest offset delta": (RawRecord(offset_delta=INT32_MAX),),
        "timestamps down": tuple(RawRecord(timestamp_delta=-at) for at in range(3)),
        "timestamps up": tuple(RawRecord(timestamp_delta=at * 1000) for at in range(3)),
        "largest timestamp delta": (RawRecord(timestamp_delta=INT64_MAX),),
        "smallest timestamp delta": (RawRecord(timestamp_delta=INT64_MIN),),
        "to no timestamp": (RawRecord(timestamp_delta=-1 - NOW_MS), RawRecord()),
        "to a negative timestamp": (RawRecord(timestamp_delta=-2 - NOW_MS), RawRecord()),
        "only negative timestamps": (RawRecord(timestamp_delta=-9 - NOW_MS),) * 2,
        "one too late": (RawRecord(), RawRecord(timestamp_delta=2 * HOUR_MS), RawRecord()),
        "one too early": (RawRecord(), RawRecord(timestamp_delta=-2 * HOUR_MS), RawRecord()),
        "too late and no key": (
            RawRecord(key=None), RawRecord(timestamp_delta=2 * HOUR_MS), RawRecord(),
        ),
        "too late without a key": (
            RawRecord(key=None, timestamp_delta=2 * HOUR_MS), RawRecord(key=None),
        ),
        "no key and an offset gap": (RawRecord(key=None), RawRecord(offset_delta=7)),
        "no key and then broken": (RawRecord(key=None), RawRecord(key_length=100)),
        "too late and an offset gap": (
            RawRecord(timestamp_delta=2 * HOUR_MS), RawRecord(offset_delta=7),
        ),
        "size 0": (RawRecord(size=0), RawRecord()),
        "size -1": (RawRecord(size=-1), RawRecord()),
        "smallest size": (RawRecord(size=INT32_MIN), RawRecord()),
        "largest size": (RawRecord(size=INT32_MAX), RawRecord()),
        "size too small": (RawRecord(size=7), RawRecord()),
        "size too large": (RawRecord(size=9), RawRecord()),
        "overlong size": (RawRecord(size=b"\x90\x80\x00"), RawRecord()),
        "headers": (RawRecord(header_count=2, headers=header_bytes((b"a", b"1"), (b"", None))),),
        "header key no UTF-8": (RawRecord(header_count=1, headers=header_bytes((b"\xff", b""))),),
        "header without key": (RawRecord(header_count=1, headers=b"\x01\x00"),),
        "header value of -2": (RawRecord(header_count=1, headers=b"\x02a\x03"),),
        "header cut": (RawRecord(header_count=1, headers=b"\x02"), RawRecord()),
        "more headers than there are": (RawRecord(header_count=2, headers=b"\x02a\x01"),),
        "fewer headers than there are": (RawRecord(header_count=0, headers=b"\x02a\x01"),),
        "-1 headers": (RawRecord(header_count=-1),),
        "most headers": (RawRecord(header_count=INT32_MAX), RawRecord()),
        "a header longer than the record": (RawRecord(header_count=1, headers=b"\x7ea\x01"),),
    }  # fmt: skip
    for name, octets in (
        ("overlong zero", OVERLONG_ZERO), ("too long", TOO_LONG), ("unending", UNENDING),
        ("fifth byte overfull", b"\x80\x80\x80\x80\x70"),
    ):  # fmt: skip
        shapes |= {
            f"{name} as size": (RawRecord(size=octets), RawRecord()),
            f"{name} as timestamp delta": (RawRecord(timestamp_delta=octets), RawRecord()),
            f"{name} as offset delta": (RawRecord(offset_delta=octets), RawRecord()),
            f"{name} as key length": (RawRecord(key=b"", key_length=octets), RawRecord()),
            f"{name} as value length": (RawRecord(value=b"", value_length=octets), RawRecord()),
            f"{name} as header count": (RawRecord(header_count=octets), RawRecord()),
        }
    cases: dict[str, bytes] = {}
    for name, records in shapes.items():
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
            cases[f"{name}, {codec.label}"] = Batch(records, codec).encode()
    return cases


def _packings() -> Mapping[str, bytes]:
    """Compressed data that a codec's library may or may not read."""
    raw = section(THREE)
    cases: dict[str, bytes] = {}
    for codec in ALL_CODECS[1:]:
        good = compress(codec, raw)
        for name, packed in {
            "cut by one": good[:-1],
            "cut in half": good[: len(good) // 2],
            "and a byte": good + b"\0",
            "twice, second counted": good + compress(codec, THREE[0].encode(3)),
            "and an empty one": good + compress(codec, b""),
            "first byte flipped": bytes([good[0] ^ 1]) + good[1:],
            "last byte flipped": good[:-1] + bytes([good[-1] ^ 1]),
            "empty": b"",
            "with a record more": compress(codec, raw + THREE[0].encode(3)),
            "with a byte more": compress(codec, raw + b"\0"),
            "with a record less": compress(codec, section(THREE[:2])),
            "with a byte less": compress(codec, raw[:-1]),
        }.items():
            count = 4 if "counted" in name else 3
            made = Batch(THREE, codec, packed=packed, count=count, last_offset_delta=count - 1)
            cases[f"{codec.label} {name}"] = made.encode()
    cases["gzip with a name"] = Batch(THREE, Codec.GZIP, packed=_named_gzip(raw)).encode()
    for level in (1, 9):
        cases[f"gzip of level {level}"] = Batch(THREE, Codec.GZIP, level=level).encode()
    return cases


def _named_gzip(raw: bytes) -> bytes:
    packed = gzip.compress(raw)
    return packed[:3] + b"\x08" + packed[4:10] + b"a name\0" + packed[10:]


def _producers() -> Mapping[str, bytes]:
    """What a producer says of itself, alone in the log; sequences of batches come elsewhere."""
    cases: dict[str, bytes] = {}
    for identity in (
        (100, 0, 0), (101, 0, 5), (102, 7, 0), (103, 7, 5), (104, 32767, INT32_MAX),
        (105, -1, 0), (106, -1, -1), (107, 0, -1), (108, 0, -2), (109, 0, INT32_MIN),
        (110, -2, 0), (111, -32768, 3), (-1, 0, 0), (-1, -1, 0), (-1, 0, -1), (-2, 0, 0),
        (-2, -1, -1), (INT64_MIN, 0, 0), (INT64_MAX, 0, 0), (0, 0, 0), (112, 0, INT32_MAX - 1),
    ):  # fmt: skip
        producer_id, epoch, sequence = identity
        cases[f"producer {identity}"] = Batch(
            THREE, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        ).encode()
    return cases


CASES: Mapping[str, bytes] = {
    **_envelopes(), **_headers(), **_records(), **_packings(), **_producers(),
}  # fmt: skip
