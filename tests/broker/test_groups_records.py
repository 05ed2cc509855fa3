"""The records of __consumer_offsets: their bytes, and what is made of others' bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.groups.records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    Record,
    decode_record,
    encode_record,
    read_committed,
    read_offset_key,
)
from odradek.broker.orders.java import partition_for, string_hash, string_length
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.group_metadata import GroupMetadataValue, MemberMetadata

names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


@st.composite
def committed_offsets(draw: st.DrawFn) -> CommittedOffset:
    offset, metadata, at_ms = draw(int64s), draw(names), draw(int64s)
    if draw(st.booleans()):
        # With an expiry the record is one of version 1, which has neither epoch nor topic id.
        expire_ms = draw(int64s.filter(lambda ms: ms != -1))
        return CommittedOffset(offset, -1, metadata, at_ms, expire_ms)
    epoch, topic_id = draw(int32s), draw(st.binary(min_size=16, max_size=16))
    return CommittedOffset(offset, epoch, metadata, at_ms, -1, topic_id)


members = st.builds(
    MemberMetadata,
    member_id=names,
    group_instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout=int32s,
    session_timeout=int32s,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)
values = st.builds(
    GroupMetadataValue,
    protocol_type=names,
    generation=int32s,
    protocol=st.none() | names,
    leader=st.none() | names,
    current_state_timestamp=int64s,
    members=st.lists(members, max_size=3),
)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(OffsetRecord, names, names, int32s, st.none() | committed_offsets()),
    st.builds(GroupRecord, names, st.none() | values),
)


@given(records)
def test_a_record_reads_back_as_it_was_written(record: Record) -> None:
    assert decode_record(*encode_record(record)) == record


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_protocol_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(ProtocolError):
        decode_record(key, value)


@given(st.integers(24, 2**15 - 1) | st.just(18), st.binary(max_size=20))
def test_records_of_other_group_protocols_are_left_alone(kind: int, rest: bytes) -> None:
    assert decode_record(kind.to_bytes(2, "big") + rest, b"") is None


def test_fields_that_a_newer_version_adds_at_the_end_are_ignored() -> None:
    record = OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "", 0))
    key, value = encode_record(record)
    assert value is not None
    assert decode_record(key, value + b"more") == record


def test_a_name_too_long_for_the_format_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        encode_record(GroupRecord("x" * 40_000, None))


def test_groups_are_hashed_as_java_hashes_strings() -> None:
    # What String.hashCode gives, in Java's documentation's formula: s[0]*31^(n-1) + ...
    assert [string_hash(text) for text in ("", "a", "ab", "hello")] == [0, 97, 3105, 99162322]


@given(names, st.integers(1, 100))
def test_a_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count


def test_strings_are_as_long_as_in_java() -> None:
    assert [string_length(text) for text in (None, "", "abc", "é", "🦉")] == [0, 0, 3, 1, 2]


@given(st.builds(OffsetRecord, names, names, int32s, committed_offsets()))
def test_an_offset_is_read_in_one_step_as_in_many(record: OffsetRecord) -> None:
    key, value = encode_record(record)
    assert value is not None and record.committed is not None
    name = read_offset_key(key)
    assert name is not None and (name.group, name.topic) == (record.group_id, record.topic)
    expected = record.committed if record.committed.expire_timestamp_ms == -1 else None
    assert read_committed(value) == expected


@given(
    st.builds(OffsetRecord, st.just("g"), st.just("t"), st.just(0), committed_offsets()),
    st.integers(0, 60),
    st.integers(0, 255),
)
def test_reading_in_one_step_finds_the_same_as_decoding_the_record(
    record: OffsetRecord, position: int, byte: int
) -> None:
    key, encoded = encode_record(record)
    assert encoded is not None
    value = bytearray(encoded)
    if position < len(value):
        value[position] = byte
    found = read_committed(bytes(value))
    if found is not None:
        decoded = decode_record(key, bytes(value))
        assert isinstance(decoded, OffsetRecord) and decoded.committed == found


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\5g", b"\0\2\0\1g", b"\0\3\0\1g\0\0\0\0"])
def test_a_key_that_is_no_offsets_is_not_read_as_one(key: bytes) -> None:
    assert read_offset_key(key) is None
