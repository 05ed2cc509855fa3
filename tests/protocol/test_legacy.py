"""Messages of magic 0 and 1: what is read, and that nothing else gets past."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame

from odradek.protocol.batches import CorruptBatch, Record, encode_batch
from odradek.protocol.compression import Codec, CorruptCompression, DecompressedTooLarge, compress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import (
    SIZES_MIN,
    _xxh32,
    decode_entry,
    decode_stored,
    read_entry,
    read_stored_header,
    stored_crc,
)
from tests.protocol.legacy_messages import encode_entry, encode_wrapper

CODECS = st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
OCTETS = st.none() | st.binary(max_size=200)
# Written by the builder of Kafka 4.3.1: (10, 100, "a", "b"), (11, 105, null, null),
# (13, 103, "", "aa") as offset, timestamp, key and value.
FROM_KAFKA = {
    (0, Codec.NONE): (
        "000000000000000a00000010a4ad2011000000000001610000000162000000000000000b0000000e"
        "a7ec68030000ffffffffffffffff000000000000000d000000103e02192900000000000000000002"
        "6161"
    ),
    (0, Codec.GZIP): (
        "000000000000000d000000513a3ef40e0001ffffffff000000431f8b08000000000000ff63600003"
        "2e201658b2564110cc634c0411491029066e20e65bfe26839981e13f1440657841baec9824351960"
        "8029311100e51010df52000000"
    ),
    (0, Codec.SNAPPY): (
        "000000000000000d0000006768e345960002ffffffff0000005982534e4150505900000000010000"
        "0001000000455200000901240a00000010a4ad20110001011c016100000001620009012c0b000000"
        "0ea7ec68030000ff0d01091954000d000000103e021929000000000000000000026161"
    ),
    (0, Codec.LZ4): (
        "000000000000000d0000006106e93c960003ffffffff0000005304224d1860401a44000000120001"
        "00910a00000010a4ad20110f0071016100000001620c00e300000b0000000ea7ec68030000ff0100"
        "001700400000000d3600413e0219290e00700000000002616100000000"
    ),
    (1, Codec.NONE): (
        "000000000000000a0000001855c7a30f010000000000000000640000000161000000016200000000"
        "0000000b000000163cef4e2601000000000000000069ffffffffffffffff000000000000000d0000"
        "0018568afc360100000000000000006700000000000000026161"
    ),
    (1, Codec.GZIP): (
        "000000000000000d0000005bcfa5a86201010000000000000069ffffffff000000451f8b08000000"
        "000000ff6360800389d0e38bf91961bc1420664c0411495011909498cd7b3f35b89accff5000e533"
        "834c09ebfa630657910ea59912130131da076d6a000000"
    ),
    (1, Codec.SNAPPY): (
        "000000000000000d000000724eace3b501020000000000000069ffffffff0000005c82534e415050"
        "59000000000100000001000000486a00001901141855c7a30f01111014640000000161010500620d"
        "13011b10163cef4e26010905010469ff0d01050e2800000300000018568afc361522286700000000"
        "000000026161"
    ),
    (1, Codec.LZ4): (
        "000000000000000d0000006fcdb8af9901030000000000000069ffffffff0000005904224d186040"
        "824a00000016000100641855c7a30f01100060640000000161050013621300001b0050163cef4e26"
        "09000102002369ff0100010e00b500000300000018568afc362200b0670000000000000002616100"
        "000000"
    ),
}


def rewrapped(magic: int, codec: Codec, offset: int, inner: bytes, timestamp: int = 5) -> bytes:
    """Put any bytes into a wrapper with the right CRC."""
    return encode_entry(magic, Record(offset, timestamp, None, compress(codec, inner)), codec)


@st.composite
def message_sets(draw: st.DrawFn, magic: int) -> list[Record]:
    offset = draw(st.integers(0, 2**50))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        timestamp = draw(st.integers(-1, 2**45)) if magic else -1
        records.append(Record(offset, timestamp, draw(OCTETS), draw(OCTETS)))
        offset += draw(st.integers(1, 5))
    return records


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_messages_are_read_as_they_were_written(magic: int, data: st.DataObject) -> None:
    record = data.draw(message_sets(magic))[0]
    entry = encode_entry(magic, record)
    header = read_entry(entry)
    assert decode_entry(entry) == [record]
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        record.offset,
        record.offset,
        record.offset + 1,
    )
    assert (header.size_bytes, header.max_timestamp) == (len(entry), record.timestamp)
    assert stored_crc(header, entry) == header.crc


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data(), codec=CODECS)
def test_wrappers_are_read_as_they_were_written(
    magic: int, data: st.DataObject, codec: Codec
) -> None:
    records = data.draw(message_sets(magic))
    entry = encode_wrapper(magic, codec, records)
    header = read_entry(entry)
    assert decode_entry(entry) == records
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert stored_crc(header, entry) == header.crc


@given(data=st.data(), codec=CODECS, now_ms=st.integers(0, 2**45))
def test_append_time_is_that_of_all_messages(
    data: st.DataObject, codec: Codec, now_ms: int
) -> None:
    records = data.draw(message_sets(1))
    entry = encode_wrapper(1, codec, records, append_time=now_ms)
    assert read_entry(entry).is_log_append_time
    assert decode_entry(entry) == [replace(record, timestamp=now_ms) for record in records]


@given(data=st.data(), magic=st.integers(0, 1), codec=CODECS)
def test_entries_lie_anywhere_in_a_buffer(
    data: st.DataObject, magic: int, codec: Codec
) -> None:
    records = data.draw(message_sets(magic))
    entry = encode_wrapper(magic, codec, records)
    before, after = data.draw(st.binary(max_size=70)), data.draw(st.binary(max_size=70))
    assert decode_entry(before + entry + after, len(before)) == records


def test_stored_bytes_of_each_format_are_read_by_their_magic() -> None:
    record = Record(7, 3, b"k", b"v")
    for magic, data in enumerate(
        (encode_entry(0, record), encode_entry(1, record), encode_batch([record], base_offset=7))
    ):
        header = read_stored_header(data)
        assert (header.magic, header.last_offset, header.size_bytes) == (magic, 7, len(data))
        assert stored_crc(header, data) == header.crc
        assert decode_stored(data) == [replace(record, timestamp=3 if magic else -1)]


@pytest.mark.parametrize(("magic", "codec"), FROM_KAFKA)
def test_kafkas_own_bytes_are_read(magic: int, codec: Codec) -> None:
    data = bytes.fromhex(FROM_KAFKA[magic, codec])
    found = []
    position = 0
    while position < len(data):
        header = read_entry(data, position)
        entry = data[position : position + header.size_bytes]
        assert (header.magic, header.codec) == (magic, codec)
        assert stored_crc(header, entry) == header.crc
        found += decode_entry(entry)
        position += header.size_bytes
    timestamps = (100, 105, 103) if magic else (-1, -1, -1)
    assert found == [
        Record(10, timestamps[0], b"a", b"b"),
        Record(11, timestamps[1], None, None),
        Record(13, timestamps[2], b"", b"aa"),
    ]


# --- damage ------------------------------------------------------------------------------------


@given(data=st.data(), magic=st.integers(0, 1), codec=st.none() | CODECS)
def test_a_flipped_bit_is_noticed(data: st.DataObject, magic: int, codec: Codec | None) -> None:
    records = data.draw(message_sets(magic))
    entry = bytearray(
        encode_wrapper(magic, codec, records) if codec else encode_entry(magic, records[0])
    )
    # The CRC covers neither the offset nor the size; whoever walks a log holds these to what
    # is before and after.
    at = data.draw(st.integers(12, len(entry) - 1))
    entry[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        header = read_stored_header(entry)
    except ProtocolError:
        return
    assert header.size_bytes == len(entry)
    assert stored_crc(header, entry) != header.crc


@given(data=st.data(), magic=st.integers(0, 1), codec=st.none() | CODECS)
def test_a_cut_entry_is_refused(data: st.DataObject, magic: int, codec: Codec | None) -> None:
    records = data.draw(message_sets(magic))
    entry = encode_wrapper(magic, codec, records) if codec else encode_entry(magic, records[0])
    cut = entry[: data.draw(st.integers(0, len(entry) - 1))]
    with pytest.raises(ProtocolError):
        decode_entry(cut)


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_a_protocol_error(data: bytes) -> None:
    try:
        decode_stored(data)
    except ProtocolError:
        return


@given(data=st.data(), magic=st.integers(0, 1), codec=CODECS)
def test_any_bytes_in_a_wrapper_are_records_or_a_protocol_error(
    data: st.DataObject, magic: int, codec: Codec
) -> None:
    records = data.draw(message_sets(magic))
    inner = bytearray(b"".join(encode_entry(data.draw(st.integers(0, 1)), r) for r in records))
    for _ in range(data.draw(st.integers(0, 3))):
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(st.integers(0, 255))
    entry = rewrapped(magic, codec, data.draw(st.integers(0, 2**62)), bytes(inner))
    try:
        found = decode_entry(entry)
    except ProtocolError:
        return
    assert len(found) <= len(inner) // SIZES_MIN[0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_decompression_is_bounded(magic: int, codec: Codec) -> None:
    records = [Record(1, -1, b"k", bytes(100_000))]
    entry = encode_wrapper(magic, codec, records)
    size = len(encode_entry(magic, records[0]))
    assert decode_entry(entry, 0, size) == records
    with pytest.raises(DecompressedTooLarge):
        decode_entry(entry, 0, size - 1)


MESSAGE = encode_entry(1, Record(3, 5, b"k", b"v"))
REFUSED = {
    "a wrapper without a value": encode_entry(1, Record(0, 0, None, None), Codec.GZIP),
    "a wrapper without messages": rewrapped(1, Codec.GZIP, 4, b""),
    "a wrapper in a wrapper": rewrapped(
        1, Codec.GZIP, 4, encode_wrapper(1, Codec.GZIP, [Record(0, 0, b"", b"")])
    ),
    "a cut message in a wrapper": rewrapped(1, Codec.GZIP, 4, MESSAGE + MESSAGE[:-1]),
    "a wrapper before its last message": rewrapped(1, Codec.GZIP, 2, MESSAGE),
    "a batch in a wrapper": rewrapped(1, Codec.GZIP, 4, encode_batch([Record(0, 0, b"", b"")])),
    "zstd, which came later": encode_entry(1, Record(4, 0, None, MESSAGE), Codec.ZSTD),
    "a value past the end": MESSAGE[:-5] + struct.pack(">i", 2) + MESSAGE[-1:],
    "a value of a negative size": MESSAGE[:-5] + struct.pack(">i", -2) + MESSAGE[-1:],
    "bytes after the value": MESSAGE[:-5] + struct.pack(">i", 0) + MESSAGE[-1:],
    "an lz4 frame that is none": encode_entry(0, Record(4, 0, None, b"\x04\x22"), Codec.LZ4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_messages_that_no_reader_would_understand_are_refused(name: str) -> None:
    with pytest.raises((CorruptBatch, CorruptCompression)):
        decode_entry(REFUSED[name])


# --- what old brokers and clients left ---------------------------------------------------------


def test_a_wrapper_at_offset_0_holds_messages_from_0_on() -> None:
    # Some librdkafka wrote 0 into wrappers of magic 1, whatever is in them.
    inner = b"".join(encode_entry(1, Record(at, 5, b"k", b"v")) for at in range(3))
    offsets = [record.offset for record in decode_entry(rewrapped(1, Codec.GZIP, 0, inner))]
    assert offsets == [0, 1, 2]


def test_offsets_go_by_the_wrapper_and_timestamps_by_the_message() -> None:
    older = encode_entry(0, Record(2, -1, b"k", b"v"))
    newer = encode_entry(1, Record(2, 8, b"k", b"v"))
    assert decode_entry(rewrapped(1, Codec.GZIP, 9, older)) == [Record(9, -1, b"k", b"v")]
    assert decode_entry(rewrapped(0, Codec.GZIP, 9, newer)) == [Record(2, 8, b"k", b"v")]


@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_under_magic_0_is_read_whatever_its_header_checksum(content_size: bool) -> None:
    inner = encode_entry(0, Record(4, -1, b"k", b"v" * 50))
    value = bytearray(frame.compress(inner, block_linked=False, store_size=content_size))
    for checksum in range(256):
        value[14 if content_size else 6] = checksum
        entry = encode_entry(0, Record(4, -1, None, bytes(value)), Codec.LZ4)
        assert decode_entry(entry) == [Record(4, -1, b"k", b"v" * 50)]


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("content_size", [0, 1, 12345, 2**40])
def test_the_hash_of_an_lz4_header_is_the_librarys(block_size: int, content_size: int) -> None:
    header = frame.compress_begin(
        frame.create_compression_context(), source_size=content_size, block_size=block_size
    )
    assert _xxh32(header[4:-1]) >> 8 & 0xFF == header[-1]


def test_the_crc_is_zlibs_from_the_magic_on() -> None:
    assert zlib.crc32(MESSAGE[16:]) == read_entry(MESSAGE).crc
