"""Hypothesis strategies for records, batches, and bytes that nearly are one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import strategies as st

from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.protocol.records_plain import encode_record, encode_varint

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
# What a producer may send: milliseconds, or none.
TIMESTAMPS = st.integers(-1, 2**50)
# Past 63 bytes, a length takes two bytes.
OCTETS = st.one_of(
    st.none(), st.binary(max_size=40), st.binary(min_size=1, max_size=2).map(lambda b: b * 90)
)
HEADERS = st.lists(st.tuples(st.text(max_size=8), OCTETS), max_size=3).map(tuple)
CODECS = st.sampled_from(Codec)


@st.composite
def record_lists(
    draw: st.DrawFn,
    timestamps: st.SearchStrategy[int] = TIMESTAMPS,
    gaps: bool = True,
    size_max: int = 8,
    base_offset: int = 0,
) -> list[Record]:
    """Records whose offsets rise from the base offset on; with gaps, as after a cleaning."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 300) if gaps else st.just(0), timestamps, OCTETS, OCTETS, HEADERS
            ),
            min_size=1,
            max_size=size_max,
        )
    )
    records = []
    offset = base_offset
    for gap, timestamp, key, value, headers in rows:
        offset += gap
        records.append(Record(offset, timestamp, key, value, headers))
        offset += 1
    return records


@st.composite
def sections(draw: st.DrawFn, gaps: bool = True) -> tuple[bytes, int]:
    """A section of well-formed records, and their count."""
    records = draw(record_lists(timestamps=INT64, gaps=gaps))
    section = b"".join(
        encode_record(record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in records
    )
    return section, len(records)


@st.composite
def mutated(draw: st.DrawFn, octets: bytes) -> bytes:
    """The bytes after one to three changes: one replaced, removed, inserted, or cut off."""
    changed = bytearray(octets)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(changed)))
        change = draw(st.sampled_from(["replace", "remove", "insert", "cut"]))
        if change == "cut":
            del changed[at:]
        elif change == "insert":
            changed[at:at] = draw(st.binary(min_size=1, max_size=3))
        elif at < len(changed):
            changed[at : at + 1] = draw(st.binary(min_size=1, max_size=1)) * (change == "replace")
    return bytes(changed)


@st.composite
def mutated_sections(draw: st.DrawFn) -> tuple[bytes, int]:
    """A section that may break the format anywhere, and a count that may be wrong."""
    section, count = draw(sections())
    return draw(mutated(section)), count + draw(st.integers(-1, 1))


@st.composite
def hostile_records(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records that are right but for their lengths and counts, which are any integers."""
    length = st.one_of(st.integers(-2, 6), INT32, INT64)
    fields = [draw(length) for _ in range(8)]
    body = b"\x00" + b"".join(
        encode_varint(field) + draw(st.binary(max_size=4)) for field in fields
    )
    size = draw(st.sampled_from([len(body), len(body) + 1, len(body) - 1]) | length)
    return encode_varint(size) + body, draw(st.integers(0, 3))


def random_sections(seed: int, rounds: int) -> Iterator[tuple[bytes, int]]:
    """Sections by the thousand: well formed, changed in a few bytes, or of hostile numbers.

    Hypothesis finds the small counterexample; this finds the rare one, being a hundred times
    faster.
    """
    rng = random.Random(seed)
    for _ in range(rounds):
        kind = rng.randrange(4)
        if kind == 3:
            numbers = (rng.choice([-1, 0, 1, 2, 3, 70, 2**31 - 1, 2**62]) for _ in range(8))
            body = b"\x00" + b"".join(
                encode_varint(number) + rng.randbytes(rng.choice([0, 0, 1, 2]))
                for number in numbers
            )
            yield encode_varint(len(body) - rng.choice([0, 0, 1])) + body, rng.randrange(3)
            continue
        count = rng.randrange(5)
        section = bytearray()
        for index in range(count):
            section += encode_record(
                index + (rng.random() < 0.1),
                rng.choice([0, index, -index, rng.getrandbits(63) - 2**62]),
                rng.choice([None, b"", rng.randbytes(5), bytes(80)]),
                rng.choice([None, b"", rng.randbytes(9), bytes(130)]),
                rng.choice([(), (("header", None),), (("a", b"1"), ("", b""))]),
            )
        for _ in range(kind):
            at = rng.randrange(len(section) + 1)
            section[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        yield bytes(section), count + rng.choice([0, 0, 0, 1, -1])
