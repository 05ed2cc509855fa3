"""The compiler, on declarations made for the purpose."""

from __future__ import annotations

import linecache
import struct as struct_module
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from odradek.protocol.compiler import decode, decode_prefix, encode, encode_into
from odradek.protocol.emitter import Emitter
from odradek.protocol.encoding import Output, emit_encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages import fetch, produce
from odradek.protocol.schema import field, fields_of, message, struct
from odradek.protocol.wire import (
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    records,
    string,
    uint16,
    uint32,
    uuid,
)

ROOT = Path(__file__).parents[2]
ID = bytes(range(16))


@struct
class Point:
    """Two numbers, of which version 0 knows one."""

    x: int32 = field()
    y: int32 = field("1+", default=-1)


@struct
class Note:
    """A text, and in flexible versions a remark in a tagged field."""

    text: string
    remark: string | None = field("2+", tag=3, default=None)


@message(versions="0-2", flexible="2+")
class Everything:
    """A field of every kind; version 2 is the flexible one."""

    flag: boolean
    tiny: int8
    small: int16
    count: uint16
    crc: uint32
    wide: int64
    ratio: float64
    id: uuid
    name: string
    title: string | None = field("1+", nullable="2+")
    blob: octets
    batch: records | None
    origin: Point
    nearest: Point | None = field("1+", default=None)
    points: list[Point]
    numbers: list[int32] | None
    ids: list[uuid]
    names: list[string]
    notes: list[Note] = field("2+")
    extent: Point = field("2+", tag=0)
    weight: int64 = field("2+", tag=1, default=7)
    labels: list[string] = field("2+", tag=4)


def everything(**changes: object) -> Everything:
    """Make a value with something in each field that version 0 has."""
    values: dict[str, object] = {
        "flag": True,
        "tiny": -1,
        "small": -2,
        "count": 2**16 - 1,
        "crc": 2**32 - 1,
        "wide": -3,
        "ratio": 0.5,
        "id": ID,
        "name": "näme",
        "blob": b"blob",
        "batch": b"batch",
        "origin": Point(x=1),
        "points": [Point(x=2)],
        "numbers": [1, -1],
        "ids": [ID, bytes(16)],
        "names": ["a", ""],
    }
    return Everything(**(values | changes))  # type: ignore[arg-type]


def test_a_classic_version_is_laid_out_field_after_field() -> None:
    expected = (
        struct_module.pack(">?bhHIqd", True, -1, -2, 65535, 2**32 - 1, -3, 0.5)
        + ID
        + b"\x00\x05n\xc3\xa4me"
        + b"\x00\x00\x00\x04blob"
        + b"\x00\x00\x00\x05batch"
        + b"\x00\x00\x00\x01"
        + b"\x00\x00\x00\x01\x00\x00\x00\x02"
        + b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff\xff\xff"
        + b"\x00\x00\x00\x02"
        + ID
        + bytes(16)
        + b"\x00\x00\x00\x02\x00\x01a\x00\x00"
    )
    assert encode(everything(), 0) == expected
    assert decode(Everything, 0, expected) == everything()


def test_a_flexible_version_has_compact_lengths_and_a_tagged_section() -> None:
    @message(versions="0", flexible="0+")
    class Small:
        name: string | None
        numbers: list[int16]
        notes: list[Note]
        weight: int64 = field(tag=1, default=7)

    value = Small(name=None, numbers=[1], notes=[Note(text="t")], weight=8)
    assert encode(value, 0) == (
        b"\x00"  # a null string
        b"\x02\x00\x01"  # one number
        b"\x02\x02t\x00"  # one note, whose tagged section is empty
        b"\x01\x01\x08" + (8).to_bytes(8, "big")  # one tagged field: tag, size, value
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fields_that_a_version_lacks_come_back_as_their_defaults(version: int) -> None:
    full = everything(
        title="title",
        origin=Point(x=1, y=5),
        nearest=Point(x=3, y=4),
        notes=[Note(text="t", remark="r"), Note(text="")],
        extent=Point(x=9),
        weight=-8,
        labels=["l"],
    )
    decoded = decode(Everything, version, encode(full, version))
    for made in fields_of(Everything):
        if version in made.spec.versions and made.name not in ("origin", "nearest", "points"):
            assert getattr(decoded, made.name) == getattr(full, made.name)
        elif version not in made.spec.versions:
            assert getattr(decoded, made.name) == made.default()
    assert decoded.origin == (Point(x=1) if version == 0 else Point(x=1, y=5))


def test_defaults_are_not_shared_between_values() -> None:
    encoded = encode(everything(), 0)
    value = decode(Everything, 0, encoded)
    value.labels.append("mine")
    value.extent.x = 1
    for other in (decode(Everything, 0, encoded), everything()):
        assert other.labels == []
        assert other.extent == Point(x=0)


def test_fields_of_fixed_size_share_one_struct_call() -> None:
    source = _encode_source(Everything, 0)
    assert source.count("pack_") == source.count("w(pack_")
    assert "pack_boolbhHIqd16s(" in source


def test_null_travels_only_where_the_version_allows_it() -> None:
    for version in (0, 1, 2):
        value = everything(batch=None, numbers=None)
        assert decode(Everything, version, encode(value, version)) == value
    assert decode(Everything, 2, encode(everything(title=None), 2)).title is None
    with pytest.raises(ProtocolError, match="title"):
        encode(everything(title=None), 1)
    with pytest.raises(ProtocolError, match="name"):
        encode(everything(name=None), 2)


def test_a_null_from_the_wire_is_refused_where_the_version_allows_none() -> None:
    encoded = encode(everything(title=""), 1)
    at = encoded.index(b"me\x00\x00") + 2
    with pytest.raises(ProtocolError, match="title"):
        decode(Everything, 1, encoded[:at] + b"\xff\xff" + encoded[at + 2 :])


def test_tagged_fields_travel_only_when_they_differ_from_their_default() -> None:
    plain = len(encode(everything(), 2))
    assert len(encode(everything(weight=7, labels=[], extent=Point(x=0)), 2)) == plain
    assert len(encode(everything(weight=0), 2)) == plain + 2 + 8
    changed = everything(extent=Point(x=0, y=0))
    assert decode(Everything, 2, encode(changed, 2)).extent == Point(x=0, y=0)


def test_unknown_tagged_fields_are_skipped_inside_structs_too() -> None:
    @message(versions="2", flexible="2+")
    class Notes:
        notes: list[Note]

    encoded = (
        b"\x03"  # two notes
        b"\x02a" + b"\x02" + b"\x03\x02\x02r" + b"\xe8\x07\x04skip"  # tags 3 and 1000
        b"\x01\x00"  # an empty text, no tags
        b"\x00"
    )
    assert decode(Notes, 2, encoded) == Notes(notes=[Note(text="a", remark="r"), Note(text="")])


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_tagged_field_whose_size_is_wrong_is_refused(size: int) -> None:
    @message(versions="0", flexible="0+")
    class Remark:
        remark: string = field(tag=0)

    assert decode(Remark, 0, b"\x01\x00\x02\x02r") == Remark(remark="r")
    with pytest.raises(ProtocolError):
        decode(Remark, 0, b"\x01\x00" + bytes([size]) + b"\x02r" + b"\x00\x00")


@pytest.mark.parametrize("version", [0, 2])
def test_huge_counts_and_lengths_are_refused(version: int) -> None:
    @message(versions="0-2", flexible="2+")
    class Strings:
        items: list[string]

    @message(versions="0-2", flexible="2+")
    class Integers:
        items: list[int32]

    @message(versions="0-2", flexible="2+")
    class Structs:
        items: list[Point]

    @message(versions="0-2", flexible="2+")
    class Blob:
        item: octets

    huge = b"\xff\xff\xff\xff\x07" if version == 2 else b"\x7f\xff\xff\xff"
    for cls in (Strings, Integers, Structs, Blob):
        with pytest.raises(ProtocolError, match="runs past the end"):
            decode(cls, version, huge + bytes(20))


def test_records_are_never_copied() -> None:
    batch = bytearray(b"batch")
    request = produce.ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            produce.TopicProduceData(
                name="t",
                partition_data=[produce.PartitionProduceData(index=0, records=batch)],
            )
        ],
    )
    output = Output()
    encode_into(request, 9, output)
    chunks = output.chunks()
    assert any(chunk is batch for chunk in chunks)

    frame = bytearray(b"".join(chunks))
    decoded = decode(produce.ProduceRequest, 9, frame)
    kept = decoded.topic_data[0].partition_data[0].records
    assert isinstance(kept, memoryview)
    assert kept.obj is frame


def test_records_of_any_buffer_are_measured_in_bytes() -> None:
    wide = memoryview(b"12345678").cast("H")
    response = fetch.PartitionData(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=[], records=wide
    )
    value = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[response])]
    )
    decoded = decode(fetch.FetchResponse, 4, encode(value, 4))
    assert decoded.responses[0].partitions[0].records == b"12345678"


def test_a_message_may_be_followed_by_others_only_when_that_is_asked_for() -> None:
    encoded = encode(everything(), 0)
    view = memoryview(b"head" + encoded + b"tail")
    assert decode_prefix(Everything, 0, view, 4) == (everything(), 4 + len(encoded))
    with pytest.raises(ProtocolError, match="4 bytes too many"):
        decode(Everything, 0, view, 4)


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    for version in (-1, 3):
        with pytest.raises(ProtocolError, match=f"no version {version}"):
            decode(Everything, version, b"")
        with pytest.raises(ProtocolError, match=f"no version {version}"):
            encode(everything(), version)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tiny", 128), ("crc", -1), ("name", "x" * 2**15), ("name", "\ud800"), ("wide", 2**63)],
    ids=["int8", "uint32", "long string", "surrogate", "int64"],
)
def test_a_value_that_its_type_cannot_hold_is_refused(name: str, value: object) -> None:
    with pytest.raises(ProtocolError, match="cannot hold"):
        encode(everything(**{name: value}), 0)


def test_text_that_is_not_utf8_is_refused() -> None:
    encoded = encode(everything(), 0).replace("näme".encode(), b"n\xff\xffme")
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode(Everything, 0, encoded)


def test_a_traceback_shows_the_generated_line() -> None:
    linecache.checkcache()
    with pytest.raises(ProtocolError) as caught:
        decode(Everything, 1, encode(everything(), 1)[:3])
    cause = caught.value.__cause__
    assert cause is not None
    assert "unpack_from_" in "".join(traceback.format_exception(cause))


def test_the_source_of_a_codec_can_be_read() -> None:
    command = [sys.executable, "-m", "odradek.protocol.compiler", "Fetch", "12"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    for name in ("FetchRequest", "FetchPartition", "FetchResponse", "PartitionData"):
        assert done.stdout.count(f"# {name} v12\n") == 2
    compile(done.stdout, "generated", "exec")


def _encode_source(cls: type, version: int) -> str:
    emitter = Emitter(cls, version, False, lambda inner: None)
    emit_encode(emitter)
    return emitter.source()
