"""Batches: layout, round trips, refusal of what is damaged, agreement with Python clients."""

from __future__ import annotations

import dataclasses
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batch_records import decode_records, iterate_records
from odradek.protocol.batches import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    BatchHeader,
    CorruptBatch,
    CrcMismatch,
    Record,
    UnsupportedMagic,
    batch_crc,
    check_crc,
    empty_batch,
    encode_batch,
    increment_sequence,
    iterate_batches,
    patch_base_offset_and_epoch,
    patch_log_append_time,
    patch_max_timestamp,
    read_header,
    replace_section,
    with_section,
)
from odradek.protocol.compression import Codec, DecompressedTooLarge
from odradek.protocol.control import (
    ControlRecord,
    ControlType,
    InvalidControlRecord,
    decode_control,
    encode_end_txn_marker,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records_plain import InvalidRecord, decode_headers, encode_record
from tests.profiles import examples
from tests.protocol.batch_strategies import CODECS, INT32, INT64, mutated, record_lists
from tests.protocol.clients import CLIENT_CODECS, CLIENTS

properties = settings(deadline=None, max_examples=examples(80))
every_codec = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)

RECORDS = [
    Record(10, 1000, b"key", b"value", (("name", b"1"), ("none", None))),
    Record(11, 1007, None, b"no key"),
    Record(15, 1003, b"tombstone", None),
]


@properties
@given(st.integers(0, 2**40), CODECS, st.data())
def test_decoding_inverts_encoding(base_offset: int, codec: Codec, data: st.DataObject) -> None:
    records = data.draw(record_lists(timestamps=INT64, base_offset=base_offset))
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    assert decode_records(batch) == records
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert header.codec == codec
    assert header.count == len(records)
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    check_crc(batch, 0, len(batch))


@properties
@given(CODECS, st.binary(max_size=300), st.data())
def test_a_batch_takes_another_section(codec: Codec, section: bytes, data: st.DataObject) -> None:
    batch = encode_batch(data.draw(record_lists(size_max=3)), codec=codec)
    made = with_section(memoryview(batch), section)
    assert made == replace_section(read_header(batch), section, codec)
    check_crc(made, 0, len(made))


@given(st.data())
def test_headers_keep_all_that_they_are_given(data: st.DataObject) -> None:
    fields: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {
                "producer_id": INT64,
                "producer_epoch": st.integers(-1, 2**15 - 1),
                "base_sequence": st.integers(-1, 2**31 - 1),
                "leader_epoch": INT32,
                "max_timestamp": INT64,
                "last_offset_delta": st.integers(5, 2**31 - 1),
            }
        )
    )
    flags: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {name: st.booleans() for name in ("transactional", "control", "log_append_time")}
        )
    )
    horizon = data.draw(st.none() | st.integers(0, 2**50))
    batch = encode_batch(RECORDS, base_offset=10, delete_horizon_ms=horizon, **fields, **flags)
    header = read_header(batch)
    assert {name: getattr(header, name) for name in fields} == fields
    assert header.is_transactional == flags["transactional"]
    assert header.is_control == flags["control"]
    assert header.is_log_append_time == flags["log_append_time"]
    assert header.has_delete_horizon == (horizon is not None)
    assert header.base_timestamp == (RECORDS[0].timestamp if horizon is None else horizon)
    assert header.next_offset == 10 + fields["last_offset_delta"] + 1
    times = {record.timestamp for record in decode_records(batch)}
    appended = flags["log_append_time"]
    assert times == ({fields["max_timestamp"]} if appended else {1000, 1007, 1003})


def test_a_batch_is_laid_out_as_kafka_documents_it() -> None:
    batch = encode_batch(
        [Record(5, 100, b"k", None)],
        base_offset=5,
        producer_id=7,
        producer_epoch=3,
        base_sequence=9,
        leader_epoch=4,
        transactional=True,
    )
    crc = struct.pack(">I", batch_crc(batch, 0, len(batch)))
    assert batch == bytes.fromhex(
        "0000000000000005" "00000039" "00000004" "02" + crc.hex() + "0010" "00000000"
        "0000000000000064" "0000000000000064" "0000000000000007" "0003" "00000009" "00000001"
        "0e" "00" "00" "00" "02" "6b" "01" "00"
    )  # fmt: skip


def test_the_crc_is_castagnolis() -> None:
    padded = bytes(21) + b"123456789"
    assert batch_crc(padded, 0, len(padded)) == 0xE3069283


@every_codec
def test_any_buffer_may_be_read(codec: Codec) -> None:
    batch = encode_batch(RECORDS, base_offset=10, codec=codec)
    padded = b"before" + batch + b"after"
    for buffer in (padded, bytearray(padded), memoryview(padded), memoryview(bytearray(padded))):
        assert decode_records(buffer, 6) == RECORDS
        check_crc(buffer, 6, len(batch))
        assert [position for position, _ in iterate_batches(buffer, 6)] == [6]


@properties
@given(CODECS, st.data())
def test_damaged_batches_give_records_or_a_protocol_error(
    codec: Codec, data: st.DataObject
) -> None:
    batch = encode_batch(data.draw(record_lists(size_max=3)), codec=codec)
    damaged = data.draw(mutated(batch) | mutated(batch[HEADER_SIZE:]).map(batch[:61].__add__))
    with suppress(ProtocolError):
        decode_records(damaged, max_decompressed=10_000)
    with suppress(ProtocolError):
        for position, header in iterate_batches(damaged):
            check_crc(damaged, position, header.size_bytes)


@properties
@given(st.binary(max_size=100))
def test_any_bytes_give_batches_or_a_protocol_error(octets: bytes) -> None:
    with suppress(ProtocolError):
        for position, _ in iterate_batches(octets):
            decode_records(octets, position, 10_000)
    with suppress(ProtocolError):
        read_header(octets)


@every_codec
def test_a_batch_cut_off_anywhere_is_refused(codec: Codec) -> None:
    batch = encode_batch(RECORDS, base_offset=10, codec=codec)
    for end in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_records(batch[:end])


@every_codec
def test_any_bit_flipped_under_the_crc_is_noticed(codec: Codec) -> None:
    batch = encode_batch(RECORDS, base_offset=10, codec=codec)
    for bit in range(17 * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CrcMismatch):
            check_crc(damaged, 0, len(batch))


def test_records_larger_than_the_bound_are_refused() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        decode_records(batch, max_decompressed=10_000)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=10))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(InvalidRecord):
        decode_records(batch)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 40, 200])
def test_older_magic_is_distinguished_from_damage(magic: int, size: int) -> None:
    message = struct.pack(">qiib", 0, 22, 0, magic).ljust(size, b"\0")
    with pytest.raises(UnsupportedMagic) as refusal:
        read_header(message)
    assert refusal.value.magic == magic
    with pytest.raises(UnsupportedMagic):
        list(iterate_batches(message))


@pytest.mark.parametrize(
    ("position", "field"),
    [
        (8, struct.pack(">i", HEADER_SIZE - LOG_OVERHEAD - 1)),
        (8, struct.pack(">i", -1)),
        (16, b"\x03"),
        (16, b"\xff"),
        (21, struct.pack(">h", 5)),
        (23, struct.pack(">i", -1)),
        (57, struct.pack(">i", -1)),
    ],
)
def test_impossible_headers_are_refused(position: int, field: bytes) -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=10))
    batch[position : position + len(field)] = field
    with pytest.raises(CorruptBatch):
        read_header(batch)
    with pytest.raises(CorruptBatch):
        list(iterate_batches(batch))


def test_iteration_stops_at_a_batch_that_is_cut_off() -> None:
    batches = [
        encode_batch([Record(offset, 0, b"k", b"v")], base_offset=offset) for offset in range(3)
    ]
    log = b"".join(batches)
    size = len(batches[0])
    for end in range(len(log) + 1):
        expected = [n * size for n in range(end // size)]
        assert [position for position, _ in iterate_batches(log[:end])] == expected
        assert [position for position, _ in iterate_batches(log, 0, end)] == expected
    found = list(iterate_batches(log, size))
    assert [(position, header.base_offset) for position, header in found] == [
        (size, 1),
        (2 * size, 2),
    ]


def test_assigning_offset_and_epoch_leaves_the_rest_alone() -> None:
    batch = encode_batch(RECORDS, base_offset=10, codec=Codec.LZ4)
    buffer = bytearray(b"xx" + batch)
    patch_base_offset_and_epoch(memoryview(buffer), 2, 2**40, 77)
    before, after = read_header(batch), read_header(buffer, 2)
    assert after == dataclasses.replace(before, base_offset=2**40, leader_epoch=77)
    check_crc(buffer, 2, len(batch))
    assert [record.offset - 2**40 for record in decode_records(buffer, 2)] == [0, 1, 5]


def test_the_log_append_time_becomes_the_timestamp_of_all_records() -> None:
    batch = encode_batch(RECORDS, base_offset=10, codec=Codec.GZIP, base_sequence=4, producer_id=1)
    buffer = bytearray(b"xx" + batch)
    patch_log_append_time(buffer, 2, 123_456)
    header = read_header(buffer, 2)
    assert header.is_log_append_time
    assert header.codec == Codec.GZIP
    assert header.max_timestamp == 123_456
    assert header.base_timestamp == read_header(batch).base_timestamp
    check_crc(buffer, 2, len(batch))
    assert {record.timestamp for record in decode_records(buffer, 2)} == {123_456}


def test_the_maximum_timestamp_can_be_put_right() -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=10, max_timestamp=5))
    patch_max_timestamp(batch, 0, 1007)
    check_crc(batch, 0, len(batch))
    assert batch == encode_batch(RECORDS, base_offset=10)


@pytest.mark.parametrize(
    ("sequence", "increment", "sum_of_both"),
    [(0, 0, 0), (5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)],
)
def test_sequences_start_over_at_zero(sequence: int, increment: int, sum_of_both: int) -> None:
    assert increment_sequence(sequence, increment) == sum_of_both
    batch = encode_batch(
        [Record(0, 0, None, None)], base_sequence=sequence, last_offset_delta=increment
    )
    assert read_header(batch).last_sequence == sum_of_both


def test_a_batch_without_sequence_has_no_last_one() -> None:
    assert read_header(encode_batch(RECORDS, base_offset=10)).last_sequence == NO_SEQUENCE


@every_codec
def test_an_empty_batch_keeps_offsets_producer_and_maximum_timestamp(codec: Codec) -> None:
    header = read_header(
        encode_batch(
            RECORDS,
            base_offset=10,
            codec=codec,
            producer_id=5,
            producer_epoch=6,
            base_sequence=7,
            transactional=True,
            leader_epoch=8,
            delete_horizon_ms=99,
        )
    )
    batch = empty_batch(header)
    emptied = read_header(batch)
    check_crc(batch, 0, HEADER_SIZE)
    assert len(batch) == HEADER_SIZE
    assert decode_records(batch) == []
    assert emptied == dataclasses.replace(
        header,
        length=HEADER_SIZE - LOG_OVERHEAD,
        crc=emptied.crc,
        attributes=0x10,
        base_timestamp=-1,
        count=0,
    )


@pytest.mark.parametrize(
    ("records", "options"),
    [
        ([], {}),
        ([Record(0, 0, None, None), Record(0, 0, None, None)], {}),
        ([Record(4, 0, None, None)], {"base_offset": 5}),
        ([Record(2**31, 0, None, None)], {}),
        ([Record(3, 0, None, None)], {"last_offset_delta": 2}),
    ],
)
def test_records_that_fit_in_no_batch_are_refused(
    records: list[Record], options: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match=r"offset|record"):
        encode_batch(records, base_offset=options.pop("base_offset", 0), **options)  # type: ignore[arg-type]


def test_header_keys_that_are_no_text_survive() -> None:
    section = encode_record(0, 0, None, None, (("\udcff\udc80", b"value"),))
    batch = encode_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + section
    patched = bytearray(batch)
    struct.pack_into(">i", patched, 8, len(batch) - LOG_OVERHEAD)
    (record,) = decode_records(patched)
    assert encode_batch([record])[HEADER_SIZE:] == section


@properties
@given(
    st.booleans(), st.integers(0, 2**50), st.integers(0, 2**62), st.integers(0, 2**15 - 1), INT32
)
def test_transaction_markers_round_trip(
    commit: bool, timestamp: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    batch = encode_end_txn_marker(
        commit=commit,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        base_offset=12,
        leader_epoch=3,
    )
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert header.base_sequence == NO_SEQUENCE
    (record,) = decode_records(batch)
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    assert decode_control(record) == ControlRecord(kind, coordinator_epoch)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\x02", b"anything", ControlRecord(ControlType.LEADER_CHANGE, None)),
        (b"\0\0\x7f\x7f", None, ControlRecord(ControlType.UNKNOWN, None)),
        (b"\0\x01\0\x01later", b"\0\x01\0\0\0\x09later", ControlRecord(ControlType.COMMIT, 9)),
    ],
)
def test_control_records_of_later_kinds_are_passed_over(
    key: bytes, value: bytes | None, expected: ControlRecord
) -> None:
    assert decode_control(Record(0, 0, key, value)) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0\0\0", None),
        (b"\xff\xff\0\0", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0", b"\0\0\0\0\0"),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\0"),
    ],
)
def test_control_records_that_say_too_little_are_refused(
    key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(InvalidControlRecord):
        decode_control(Record(0, 0, key, value))


@pytest.mark.parametrize(("client", "codec"), CLIENT_CODECS, ids=str)
def test_python_clients_read_our_batches(client: str, codec: Codec) -> None:
    @settings(deadline=None, max_examples=examples(25))
    @given(record_lists(base_offset=10), st.booleans())
    def check(records: list[Record], log_append_time: bool) -> None:
        batch = encode_batch(
            records, base_offset=10, codec=codec, log_append_time=log_append_time, producer_id=3
        )
        theirs = CLIENTS[client][1].DefaultRecordBatch(batch)
        assert theirs.validate_crc()
        assert theirs.next_offset == read_header(batch).next_offset
        assert [_of_client(record) for record in theirs] == decode_records(batch)

    check()


@pytest.mark.parametrize(("client", "codec"), CLIENT_CODECS, ids=str)
def test_batches_of_python_clients_are_read(client: str, codec: Codec) -> None:
    @settings(deadline=None, max_examples=examples(25))
    # aiokafka's builder takes a first timestamp of -1 for none at all, and starts from the next.
    @given(record_lists(timestamps=st.integers(0, 2**50), gaps=False))
    def check(records: list[Record]) -> None:
        builder = CLIENTS[client][1].DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec.value,
            is_transactional=1,
            producer_id=11,
            producer_epoch=2,
            base_sequence=30,
            batch_size=1 << 20,
        )
        for record in records:
            builder.append(
                record.offset, record.timestamp, record.key, record.value, list(record.headers)
            )
        batch = bytes(builder.build())
        assert decode_records(batch) == records
        header = read_header(batch)
        check_crc(batch, 0, len(batch))
        assert header == BatchHeader(*HEADER.unpack_from(batch))
        assert header.is_transactional
        assert header.last_sequence == 30 + records[-1].offset
        if codec == Codec.NONE:
            ours = encode_batch(
                records,
                producer_id=11,
                producer_epoch=2,
                base_sequence=30,
                transactional=True,
                leader_epoch=header.leader_epoch,
            )
            assert ours == batch

    check()


def _of_client(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_headers_may_be_left_as_they_lie(codec: Codec) -> None:
    headers = (("a", b"1"), ("", None))
    records = [Record(0, 1, b"k", b"v", headers), Record(1, 1, None, None)]
    batch = encode_batch(records, codec=codec)
    first, second = iterate_records(batch, raw_headers=True)
    assert second == records[1]
    ((name, raw),) = first.headers
    assert name == "" and raw is not None
    assert dataclasses.replace(first, headers=decode_headers(raw, 0, len(raw))) == records[0]


def test_a_record_without_a_count_of_headers_is_malformed() -> None:
    section = b"\x0a" + bytes(3) + b"\x01\x01"  # its size, and no more than a null key and value
    batch = with_section(encode_batch([Record(0, 0, None, None)]), section)
    for raw_headers in (True, False):
        with pytest.raises(InvalidRecord):
            list(iterate_records(batch, raw_headers=raw_headers))
