"""The contents of the files of a log directory, row by row: read unchanged, never repaired.

Each kind of file has a reader, which yields rows and, where the file is damaged, the damage: it
continues behind the damage where it can. One chunk of a file is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from odradek.cli.dump_words import Decoder, decoder_of
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.protocol import legacy
from odradek.protocol.batches import MAGIC, NO_PRODUCER_ID, BatchHeader, Record
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.storage import checkpoints, epochs
from odradek.storage.errors import CorruptFile
from odradek.storage.exchange import base_offset_of
from odradek.storage.files import FileSystem
from odradek.storage.index import OffsetIndex, TimeIndex
from odradek.storage.meta_properties import META, read_properties
from odradek.storage.partition_directories import PARTITION_METADATA
from odradek.storage.producers import ProducerStates
from odradek.storage.scan import Batches, Wasted
from odradek.storage.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
)
from odradek.storage.transactions import parse_aborted

# A snapshot of a controller's metadata: batches, as in a log (see storage/kraft.py).
CHECKPOINT = ".checkpoint"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, CHECKPOINT)
CHECKPOINTS = (
    checkpoints.CLEANER_OFFSETS,
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.ADOPTED_EPOCHS,
)
_WORDS_OF_METADATA = re.compile(r"(\w+): (\S+)")

# The most that is shown of one record: more than a broker accepts by default.
_SHOWN_BYTES_MAX = 8 << 20
_HEADERS_MAX = 10_000
_METADATA_BYTES_MAX = 64 << 10

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """One item in a file: its kind and its fields."""

    kind: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Wanted:
    """The level of detail."""

    records: bool = False
    deep: bool = False


Rows = Iterator[Row | CorruptFile]
Reader = Callable[[FileSystem, Path, Wanted], Rows]


def reader_of(path: Path) -> Reader | None:
    """Return the reader for a file, by its name; None for a file of no known kind."""
    name = path.name
    for suffix in (CLEANED, SWAP, DELETED):
        name = name.removesuffix(suffix)
    return _BY_NAME.get(name) or _BY_SUFFIX.get(Path(name).suffix)


def _read_batches(fs: FileSystem, path: Path, wanted: Wanted) -> Rows:
    """Yield the batches of a segment, and their records when they are wanted."""
    file = fs.open(path)
    batches = Batches(file, path, file.size())
    decoder = decoder_of(path.parent.name) if wanted.records else None
    position, offset_min, wasted = 0, max(base_offset_of(path.name), 0), Wasted()
    while position < batches.size_bytes:
        for at, header, data in batches.read(position):
            has_crc = legacy.stored_crc(header, data) == header.crc
            cause = None if has_crc else "the CRC does not match the bytes"
            # Old producers gave the messages in a wrapper their own offsets.
            if has_crc and header.magic == MAGIC and header.base_offset < offset_min:
                cause = f"offset {header.base_offset} where at least {offset_min} is expected"
            yield Row("batch", _of_batch(at, header, has_crc=has_crc))
            if cause is not None:
                yield CorruptFile(path, at, cause, offset=offset_min)
            elif wanted.records or wanted.deep:
                yield from _records(path, at, header, data, wanted, decoder)
            position = at + header.size_bytes
            if cause is None:
                offset_min = header.next_offset
        if position == batches.size_bytes:
            return
        # More batches may follow the damaged bytes.
        cause = f"no whole batch in the {batches.size_bytes - position} bytes that are left"
        following = batches.next_intact(position, offset_min, INT64_MAX, wasted)
        if following < batches.size_bytes:
            cause = f"no batch in {following - position} bytes"
        yield CorruptFile(path, position, cause, offset=offset_min)
        position = following


def _of_batch(position: int, header: BatchHeader, *, has_crc: bool) -> Fields:
    has_producer = header.producer_id != NO_PRODUCER_ID
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": header.codec.label,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if has_producer else None,
        "producer_epoch": header.producer_epoch if has_producer else None,
        "base_sequence": header.base_sequence if has_producer else None,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon": header.base_timestamp if header.has_delete_horizon else None,
        "crc": header.crc,
        "crc_ok": has_crc,
    }


def _records(
    path: Path,
    position: int,
    header: BatchHeader,
    data: memoryview,
    wanted: Wanted,
    decoder: Decoder | None,
) -> Rows:
    try:
        # One at a time: a few bytes may hold millions of records, or of headers.
        for record in legacy.iterate_stored(data, headers_max=_HEADERS_MAX):
            if wanted.records:
                yield Row("record", _of_record(header, record, decoder))
    except ProtocolError as error:
        yield CorruptFile(path, position, str(error), offset=header.base_offset)


def _of_record(header: BatchHeader, record: Record, decoder: Decoder | None) -> Fields:
    fields: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _shown(record.key),
        "value": _shown(record.value),
        "headers": [(name, _shown(value)) for name, value in record.headers],
    }
    cut = [name for name in ("key", "value") if fields[name] is not getattr(record, name)]
    if len(record.headers) == _HEADERS_MAX:
        cut.append("headers")
    if cut:
        fields["cut"] = cut
    try:
        if header.is_control:
            control = decode_control(record)
            fields["control"] = (
                control.type.name.lower() if control.type != ControlType.UNKNOWN else "unknown"
            )
            fields["coordinator_epoch"] = control.coordinator_epoch
        elif decoder is not None and record.key is not None:
            fields["decoded"] = decoder(record.key, record.value)
    except ProtocolError as error:
        fields["undecodable"] = str(error)
    return fields


def _shown(data: bytes | None) -> bytes | None:
    return data if data is None or len(data) <= _SHOWN_BYTES_MAX else data[:_SHOWN_BYTES_MAX]


def _read_index(fs: FileSystem, path: Path, wanted: Wanted) -> Rows:
    index = OffsetIndex(fs, path, max(base_offset_of(path.name), 0))
    offsets, positions = index.entries.load()
    base = max(base_offset_of(path.name), 0)
    for offset, position in zip(offsets, positions, strict=True):
        yield Row("offset index entry", {"offset": base + offset, "position": position})
    yield from _index_damage(index.entries.damage)
    if wanted.deep:
        from odradek.cli.dump_check import check_offset_index

        yield from check_offset_index(fs, path)


def _read_time_index(fs: FileSystem, path: Path, wanted: Wanted) -> Rows:
    base = max(base_offset_of(path.name), 0)
    index = TimeIndex(fs, path, base)
    timestamps, offsets = index.entries.load()
    for timestamp, offset in zip(timestamps, offsets, strict=True):
        yield Row("time index entry", {"timestamp": timestamp, "offset": base + offset})
    yield from _index_damage(index.entries.damage)
    if wanted.deep:
        from odradek.cli.dump_check import check_time_index

        yield from check_time_index(fs, path)


def _index_damage(damage: CorruptFile | None) -> Rows:
    if damage is not None:
        yield damage


def _read_aborted(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    for one in parse_aborted(fs.read_bytes(path), path):
        yield Row(
            "aborted transaction",
            {
                "producer_id": one.producer_id,
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
                "last_stable_offset": one.last_stable_offset,
            },
        )


def _read_snapshot(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    states = ProducerStates(fs, path.parent)
    states.read_snapshot(base_offset_of(path.name))
    for one in states:
        first = one.transaction_first_offset
        last = one.batches[-1] if one.batches else None
        yield Row(
            "producer",
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "coordinator_epoch": one.coordinator_epoch,
                "transaction_first_offset": first if first >= 0 else None,
                "last_timestamp": one.last_timestamp,
                "first_sequence": last.first_sequence if last else None,
                "last_sequence": last.last_sequence if last else None,
                "last_offset": last.last_offset if last else None,
            },
        )


def _read_epochs(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    known = epochs.LeaderEpochs(fs, path.parent)
    known.load()
    for epoch, start_offset in known.entries:
        yield Row("leader epoch", {"epoch": epoch, "start_offset": start_offset})


def _read_checkpoint(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    for (topic, partition), offset in checkpoints.read_offsets(fs, path).items():
        yield Row("checkpoint", {"topic": topic, "partition": partition, "offset": offset})


def _read_partition_metadata(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    text = fs.read_bytes(path, _METADATA_BYTES_MAX).decode(errors="replace")
    fields = dict(_WORDS_OF_METADATA.findall(text))
    if "topic_id" not in fields:
        yield CorruptFile(path, 0, "it has no topic id")
    yield Row("partition metadata", fields)


def _read_meta(fs: FileSystem, path: Path, _: Wanted) -> Rows:
    yield Row("meta.properties", dict(read_properties(fs, path)))


_BY_SUFFIX: Mapping[str, Reader] = {
    LOG: _read_batches,
    CHECKPOINT: _read_batches,
    INDEX: _read_index,
    TIME_INDEX: _read_time_index,
    TXN_INDEX: _read_aborted,
    SNAPSHOT: _read_snapshot,
}
_BY_NAME: Mapping[str, Reader] = {
    epochs.FILE_NAME: _read_epochs,
    PARTITION_METADATA: _read_partition_metadata,
    META: _read_meta,
    **dict.fromkeys(CHECKPOINTS, _read_checkpoint),
}
