"""Strategies for batches that are wrong in some way that nobody thought of."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from odradek.protocol.batches import HEADER_SIZE
from odradek.protocol.compression import Codec, compress
from tests.broker.append_cases import HOUR_MS, NOW_MS
from tests.broker.raw_batches import RawBatch, RawRecord, fix_crc, header_bytes, section

EDGES32 = st.sampled_from([0, 1, 2, 3, 7, -1, -2, 2**31 - 1, -(2**31)])
INT32 = st.one_of(EDGES32, st.integers(-(2**31), 2**31 - 1))
TIMES = st.one_of(
    st.sampled_from([-1, -2, 0, 2**63 - 1, -(2**63)]),
    st.integers(-3, 3).map(lambda by: NOW_MS + by * HOUR_MS + HOUR_MS // 2),
)
VARINTS = st.one_of(INT32, st.binary(min_size=1, max_size=11))
OCTETS = st.one_of(st.none(), st.binary(max_size=12))


@st.composite
def records(draw: st.DrawFn) -> list[RawRecord]:
    """Records that are right, but for at most two fields of one of them."""
    made = [
        RawRecord(
            key=draw(st.binary(max_size=4)),
            value=draw(OCTETS),
            timestamp_delta=draw(st.integers(-5, 5)),
            header_count=count,
            headers=header_bytes(*[(b"h%d" % at, b"x") for at in range(count)]),
        )
        for count in draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    ]
    wrong = {
        "size": VARINTS,
        "attributes": st.integers(0, 255),
        "timestamp_delta": st.one_of(VARINTS, TIMES.map(lambda at: (at - NOW_MS) % 2**63)),
        "offset_delta": VARINTS,
        "key_length": VARINTS,
        "key": st.none(),
        "value_length": VARINTS,
        "header_count": VARINTS,
        "headers": st.binary(max_size=6),
        "tail": st.binary(min_size=1, max_size=3),
    }
    at = draw(st.integers(0, len(made) - 1))
    for name in draw(st.lists(st.sampled_from(sorted(wrong)), max_size=2, unique=True)):
        values = {field: getattr(made[at], field) for field in made[at].__slots__}
        made[at] = RawRecord(**{**values, name: draw(wrong[name])})
    return made


@st.composite
def batches(draw: st.DrawFn) -> RawBatch:
    """Batches whose header is right, but for at most two fields."""
    codec = draw(st.sampled_from(Codec))
    made = draw(records())
    fields = {
        "base_offset": st.sampled_from([1, -1, 2**63 - 1, -(2**63)]),
        "length": INT32,
        "leader_epoch": INT32,
        "magic": st.integers(-128, 127),
        "crc": st.integers(0, 2**32 - 1),
        # Not transactional: that is compared where transactions are.
        "flags": st.integers(0, 2**12 - 1).map(lambda bits: bits << 3 & ~0x10),
        "last_offset_delta": INT32,
        "base_timestamp": TIMES,
        "max_timestamp": TIMES,
        "producer_id": st.sampled_from([-1, -2, 2**63 - 1, -(2**63)]),
        "producer_epoch": st.sampled_from([-1, -2, 0, 1, 2**15 - 1]),
        "base_sequence": INT32,
        "count": INT32,
    }
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True))
    return RawBatch(
        made, **{"codec": codec, "base_timestamp": NOW_MS}
        | {name: draw(fields[name]) for name in chosen},
    )  # fmt: skip


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """A right batch with some bytes changed, the CRC right or not."""
    codec = draw(st.sampled_from(Codec))
    rows = [RawRecord(value=b"v" * draw(st.integers(0, 30))) for _ in range(3)]
    made = bytearray(RawBatch(rows, codec, base_timestamp=NOW_MS).encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(made) - 1))
        made[at] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        made[22] &= ~0x10
        fix_crc(made)
    return bytes(made)


@st.composite
def repacked(draw: st.DrawFn) -> bytes:
    """A right batch whose compressed bytes were changed before the CRC was made."""
    codec = draw(st.sampled_from([*Codec][1:]))
    rows = [RawRecord(value=b"v" * draw(st.integers(0, 30))) for _ in range(3)]
    packed = bytearray(compress(codec, section(rows)))
    at = draw(st.integers(0, len(packed)))
    change = draw(st.sampled_from(["replace", "insert", "remove", "cut"]))
    if change == "cut":
        del packed[at:]
    elif change == "insert":
        packed[at:at] = draw(st.binary(min_size=1, max_size=9))
    elif change == "remove":
        del packed[at : at + 1]
    elif at < len(packed):
        packed[at] = draw(st.integers(0, 255))
    return RawBatch(rows, codec, packed=bytes(packed), base_timestamp=NOW_MS).encode()


@st.composite
def resized(draw: st.DrawFn) -> bytes:
    """A right batch with bytes removed from its end or added, its length right or not."""
    made = bytearray(RawBatch([RawRecord()] * 3, base_timestamp=NOW_MS).encode())
    cut = draw(st.integers(0, len(made)))
    made[cut:] = draw(st.binary(max_size=20))
    if draw(st.booleans()) and len(made) >= HEADER_SIZE:
        struct.pack_into(">i", made, 8, len(made) - 12)
        made[22] &= ~0x10
        fix_crc(made)
    return bytes(made)


def mutations() -> st.SearchStrategy[bytes]:
    """Any of these."""
    encoded = batches().map(lambda batch: batch.encode())
    two = st.tuples(encoded, encoded).map(b"".join)
    return st.one_of(
        encoded, encoded, torn(), repacked(), resized(), two, st.binary(max_size=100)
    )
