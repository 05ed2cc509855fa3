"""Segments as Kafkas of several ages wrote them, one after the other, into one log."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odradek.protocol.batches import LOG_APPEND_TIME_BIT, Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.storage.files import FileSystem
from odradek.storage.segment import LOG, file_name
from tests.protocol.legacy_messages import encode_entry, encode_wrapper

# The codecs that each message format knows.
FORMATS = {0: tuple(Codec)[:4], 1: tuple(Codec)[:4], 2: tuple(Codec)}
# When these records are of: ms.
NOW_MS = 1_500_000_000_000


@dataclass(frozen=True, slots=True)
class Written:
    """A batch, or an entry of an older format, and the records that a reader finds in it."""

    magic: int
    codec: Codec
    data: bytes
    records: tuple[Record, ...]

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.records[-1].offset


def write(
    magic: int, codec: Codec, records: Sequence[Record], append_time: int | None = None
) -> Written:
    """Write records as one batch or entry; only one goes into an uncompressed entry."""
    if magic == 0:
        read = [replace(record, timestamp=-1) for record in records]
    elif append_time is not None:
        read = [replace(record, timestamp=append_time) for record in records]
    else:
        read = list(records)
    if magic == 2:
        data = encode_batch(
            records,
            base_offset=records[0].offset,
            codec=codec,
            log_append_time=append_time is not None,
            max_timestamp=append_time,
        )
    elif codec != Codec.NONE:
        data = encode_wrapper(magic, codec, records, append_time)
    else:
        assert len(records) == 1
        is_stamped = magic == 1 and append_time is not None
        data = encode_entry(magic, read[0], LOG_APPEND_TIME_BIT if is_stamped else 0)
    return Written(magic, codec, data, tuple(read))


def random_log(
    seed: int, count: int, magics: Sequence[int] = (0, 1, 2), first_offset: int = 0
) -> list[Written]:
    """Write batches and entries of any size and codec; offsets have gaps, as after a cleaning."""
    source = random.Random(seed)
    written: list[Written] = []
    offset = first_offset
    for at in range(count):
        magic = source.choice(magics)
        codec = source.choice(FORMATS[magic])
        now_ms = NOW_MS + at * 100
        records = []
        for _ in range(1 if magic < 2 and codec == Codec.NONE else source.choice([1, 2, 9, 30])):
            value = source.choice([None, b"", b"v" * source.randrange(300)])
            key = b"key%d" % source.randrange(20)
            records.append(Record(offset, now_ms - source.randrange(500), key, value))
            offset += source.choice([1, 1, 1, 3])
        append_time = now_ms if source.randrange(5) == 0 else None
        written.append(write(magic, codec, records, append_time))
    return written


def all_records(written: Iterable[Written]) -> list[Record]:
    """Return what a reader of a log finds."""
    return [record for one in written for record in one.records]


def lay_segments(
    fs: FileSystem, directory: Path, segments: Iterable[Sequence[Written]]
) -> None:
    """Put segments where a log's are, and nothing beside them: no index, no checkpoint.

    Each is named after its first offset, and the first one 0.
    """
    for name in fs.list(directory):
        if name != "partition.metadata":
            fs.remove(directory / name)
    for at, segment in enumerate(segments):
        base_offset = segment[0].records[0].offset if at else 0
        path = directory / (file_name(base_offset) + LOG)
        fs.write_bytes(path, b"".join(one.data for one in segment))
