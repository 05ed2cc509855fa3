"""Writes the logs that both cleaners get: partition directories, written by storage itself.

A log has stages, from the oldest to the youngest, a day apart: as min.compaction.lag.ms is
lowered, one after the other is cleaned. Keys are numbers of twelve digits, values are random
hexadecimal digits, which compress to half. Everything is seeded: equal loads are equal to the
byte, except their timestamps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from odradek.config.topic import TopicConfig
from odradek.protocol.batches import (
    HEADER_SIZE,
    Record,
    encode_batch,
    read_header,
    replace_section,
)
from odradek.protocol.compression import Codec, compress
from odradek.storage.directory import LogDirectory
from odradek.storage.real_files import RealFileSystem

DAY_MS = 24 * 60 * 60 * 1000
TOPIC = "cleaned"
PARTITION = f"{TOPIC}-0"

# Batches of this size, as producers with some throughput send them.
_BATCH_BYTES = 64 * 1024
_DIGITS = 12
_KEY = b"key-" + bytes(_DIGITS)
# A record's offset delta takes one byte below this number, then two.
_SHORT_DELTAS = 64

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Load:
    """A log to clean."""

    stages: Sequence[Numbers]  # the keys of each stage's records, in order
    value_bytes: int
    segment_bytes: int
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True)
class Written:
    """A log on the disk."""

    directory: Path
    end_offsets: Sequence[int]  # of each stage; all before it is sealed
    section_bytes: int  # of all records, before compression


def lag_ms(stage: int, stages: int) -> int:
    """Return the min.compaction.lag.ms with which a stage is cleaned, and no later one."""
    return (stages - stage) * DAY_MS - DAY_MS // 2


def write_log(load: Load, folder: Path) -> Written:
    """Write a log into a folder that does not exist yet."""
    fs = RealFileSystem()
    now_ms = int(time.time() * 1000)
    directory = LogDirectory(fs, folder, cluster_id="bench", node_id=1)
    config = TopicConfig(segment_bytes=load.segment_bytes)
    log = directory.create_log(TOPIC, 0, bytes(range(16)), config, now_ms=now_ms)
    random = np.random.default_rng(7)
    ends, section_bytes = [], 0
    for number, keys in enumerate(load.stages):
        timestamp = now_ms - (len(load.stages) - number) * DAY_MS
        for section, template in _sections(keys, load.value_bytes, timestamp, random):
            section_bytes += len(section)
            packed = _compress(load.codec, section)
            batch = replace_section(read_header(template), packed, load.codec)
            log.append(batch, now_ms=now_ms, from_client=False)
        log.roll(now_ms)
        ends.append(log.log_end_offset)
    directory.close()
    return Written(folder / PARTITION, ends, section_bytes)


def _sections(
    keys: Numbers, value_bytes: int, timestamp: int, random: np.random.Generator
) -> Iterator[tuple[memoryview, bytes]]:
    """Yield the records of each batch, together with a batch that has the same header."""
    per_batch = max(_BATCH_BYTES // (len(_KEY) + value_bytes + 10), 1)
    template = b""
    for start in range(0, len(keys), per_batch):
        part = keys[start : start + per_batch]
        if start == 0 or len(part) < per_batch:
            template = _template(len(part), value_bytes, timestamp)
        section = np.frombuffer(template, np.uint8)[HEADER_SIZE:].copy()
        short = min(len(part), _SHORT_DELTAS)
        # Records whose deltas have the same length have the same length: rows of a table.
        edge = len(_template(short, value_bytes, timestamp)) - HEADER_SIZE
        _fill(section[:edge].reshape(short, -1), part[:short], value_bytes, random)
        if short < len(part):
            rows = section[edge:].reshape(len(part) - short, -1)
            _fill(rows, part[short:], value_bytes, random)
        yield section.data, template


def _compress(codec: Codec, section: memoryview) -> bytes:
    if codec != Codec.ZSTD:
        return compress(codec, section)
    # Clients stream: their frames do not contain the size of the content.
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(section) + stream.flush()


def _template(count: int, value_bytes: int, timestamp: int) -> bytes:
    empty = bytes(value_bytes)
    return encode_batch([Record(at, timestamp, _KEY, empty) for at in range(count)])


def _fill(rows: Bytes, keys: Numbers, value_bytes: int, random: np.random.Generator) -> None:
    """Write keys and values into records, each a row that ends with its count of headers."""
    value_at = rows.shape[1] - 1 - value_bytes
    digits_at = rows[0].tobytes().index(_KEY) + len(_KEY) - _DIGITS
    powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
    rows[:, digits_at : digits_at + _DIGITS] = keys[:, None] // powers % 10 + ord("0")
    halves = np.frombuffer(random.bytes(len(keys) * value_bytes), np.uint8) & 0x0F
    values = np.frombuffer(b"0123456789abcdef", np.uint8)[halves]
    rows[:, value_at:-1] = values.reshape(len(keys), value_bytes)
