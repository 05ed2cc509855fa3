"""Reading KRaft's metadata log: what counts, what does not, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compiler import encode
from odradek.protocol.control import ControlType
from odradek.protocol.messages.metadata_records import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    END_TRANSACTION,
    FRAME_VERSION,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.protocol.schema import info_of
from odradek.protocol.wire import uvarint
from odradek.storage.errors import CorruptFile, NewerFormat
from odradek.storage.kraft import MetadataLog
from odradek.storage.real_files import RealFileSystem

FS = RealFileSystem()
WRITTEN_MS = 1_700_000_000_000


def frame(message: object, version: int = 0) -> bytes:
    """Frame a message as controllers do."""
    key = info_of(type(message)).key
    return uvarint(FRAME_VERSION) + uvarint(key) + uvarint(version) + encode(message, version)


def bare(key: int) -> bytes:
    """Frame a message of no fields, such as the begin of a transaction."""
    return uvarint(FRAME_VERSION) + uvarint(key) + uvarint(0) + b"\x00"


def setting(name: str) -> bytes:
    """Frame a setting, the record of which most can be made."""
    return frame(ConfigRecord(resource_type=2, resource_name="orders", name=name, value="1"))


def batch(values: Sequence[bytes], base_offset: int) -> bytes:
    """Encode a batch of the metadata log."""
    records = [
        Record(base_offset + at, WRITTEN_MS, None, value) for at, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=base_offset, leader_epoch=1)


def control(kind: ControlType, base_offset: int) -> bytes:
    """Encode a control batch."""
    key = struct.pack(">hh", 0, kind)
    record = Record(base_offset, WRITTEN_MS, key, b"\x00\x00")
    return encode_batch([record], base_offset=base_offset, control=True, leader_epoch=1)


def write_log(path: Path, *batches: bytes, base: int = 0) -> None:
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))


def write_snapshot(
    path: Path, end: int, values: Sequence[bytes], *, finished: bool = True
) -> None:
    parts = [control(ControlType.SNAPSHOT_HEADER, 0)]
    parts += [batch(values, 1)] if values else []
    parts += [control(ControlType.SNAPSHOT_FOOTER, 1 + len(values))] if finished else []
    (path / f"{end:020d}-{1:010d}.checkpoint").write_bytes(b"".join(parts))


def names(path: Path) -> list[str]:
    """Read a log, and return the names of its settings."""
    return [entry.message.name for entry in MetadataLog(FS, path).read()]  # type: ignore[attr-defined]


def test_records_come_in_order_with_their_times(tmp_path: Path) -> None:
    topic = TopicRecord(name="orders", topic_id=bytes(range(16)))
    partition = PartitionRecord(
        topic_id=topic.topic_id, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[],
        directories=[bytes(16)], partition_id=0, leader=1, leader_epoch=0, partition_epoch=0,
    )  # fmt: skip
    write_log(tmp_path, control(ControlType.LEADER_CHANGE, 0),
              batch([frame(topic), frame(partition, 2)], 1))  # fmt: skip
    entries = list(MetadataLog(FS, tmp_path).read())
    assert [entry.message for entry in entries] == [topic, partition]
    assert {entry.written_ms for entry in entries} == {WRITTEN_MS}


@given(
    st.lists(
        st.tuples(st.sampled_from(["plain", "ended", "aborted", "open"]), st.integers(0, 3)),
        max_size=6,
    ),
    st.integers(1, 4),
)
def test_only_what_was_not_undone_counts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, int]], batch_size: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    # A transaction that is left open can only be the last thing in a log.
    parts = [part for part in parts if part[0] != "open"] + [
        part for part in parts if part[0] == "open"
    ][:1]
    values, expected = [setting("first")], ["first"]
    for number, (fate, count) in enumerate(parts):
        written = [f"{number}.{at}" for at in range(count)]
        if fate != "plain":
            values.append(bare(BEGIN_TRANSACTION))
        values += map(setting, written)
        if fate in ("ended", "aborted"):
            values.append(bare(END_TRANSACTION if fate == "ended" else ABORT_TRANSACTION))
        if fate in ("plain", "ended"):
            expected += written
    write_log(path, *(
        batch(values[at : at + batch_size], at) for at in range(0, len(values), batch_size)
    ))  # fmt: skip
    assert names(path) == expected


def test_a_snapshot_stands_for_what_is_before_it(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 2, [setting("old")])
    write_snapshot(tmp_path, 3, [setting("kept")])
    write_snapshot(tmp_path, 5, [setting("unfinished")], finished=False)
    write_log(tmp_path, batch([setting("a"), setting("b"), setting("c"), setting("d")], 0),
              batch([setting("e")], 4))  # fmt: skip
    entries = list(MetadataLog(FS, tmp_path).read())
    assert [entry.message.name for entry in entries] == ["kept", "d", "e"]  # type: ignore[attr-defined]
    assert [entry.written_ms for entry in entries] == [None, WRITTEN_MS, WRITTEN_MS]


def test_a_log_may_begin_where_a_snapshot_ends_and_no_later(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 7, [setting("kept")])
    write_log(tmp_path, batch([setting("a")], 7), base=7)
    assert names(tmp_path) == ["kept", "a"]
    (tmp_path / f"{7:020d}.log").rename(tmp_path / f"{9:020d}.log")
    with pytest.raises(CorruptFile, match="offsets 7 to 8 are in no file"):
        names(tmp_path)


@given(st.data())
def test_a_torn_end_is_left_out_and_counted(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log")
    whole, last = batch([setting("a")], 0), batch([setting("b")], 1)
    kept = data.draw(st.integers(1, len(last) - 1))
    write_log(path, whole, last[:kept])
    log = MetadataLog(FS, path)
    assert [entry.message.name for entry in log.read()] == ["a"]  # type: ignore[attr-defined]
    assert log.torn_bytes == kept


def test_damage_before_another_segment_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, batch([setting("a")], 0), batch([setting("b")], 1)[:-1])
    write_log(tmp_path, batch([setting("c")], 2), base=2)
    with pytest.raises(CorruptFile, match="does not end with a batch"):
        names(tmp_path)


def test_a_directory_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="neither a log nor a snapshot"):
        names(tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        uvarint(FRAME_VERSION) + uvarint(99) + uvarint(0) + b"\x00",
        uvarint(FRAME_VERSION) + uvarint(4) + uvarint(7) + b"\x00",
        uvarint(FRAME_VERSION + 1) + uvarint(4) + uvarint(0) + b"\x00",
    ],
    ids=["type", "version", "frame"],
)
def test_records_of_a_newer_kafka_are_refused(tmp_path: Path, value: bytes) -> None:
    write_log(tmp_path, batch([value], 0))
    with pytest.raises(NewerFormat, match=r"from a Kafka newer than 4\.3"):
        names(tmp_path)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: bytes
) -> None:
    path = tmp_path_factory.mktemp("log")
    write_log(path, batch([value], 0))
    try:
        list(MetadataLog(FS, path).read())
    except (CorruptFile, NewerFormat) as error:
        assert str(path) in str(error)
