"""Apache Kafka's own DumpLogSegments reads what a cleaning leaves behind."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.processes import kafka_tool
from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.worlds import EAGER, World

DUMP = "org.apache.kafka.tools.DumpLogSegments"
_RECORD = re.compile(
    r"\| offset: (\d+) (?:Create|LogAppend)Time: (-?\d+) .*?headerKeys: \[([^]]*)\]"
    r"(?: key: (\S*))?(?: payload: (\S*))?$"
)


def make_cleaned(path: Path) -> World:
    """Clean a log of every codec, with tombstones, producers, transactions, gaps, append times."""
    world = World(path, replace(EAGER, index_interval_bytes=300))
    for at in range(120):
        codec = list(Codec)[at % len(Codec)]
        world.append(
            [
                (b"k%d" % (at % 50), b"v%d" % at),
                (b"t%d" % (at % 9), None),
                (b"u%d" % at, b"x" * 40),
            ],
            codec=codec,
            gap=at % 3,
            producer=(9, 0, 3 * at) if at % 2 else None,
            log_append_time=at % 5 == 0,
        )
        world.now_ms += 3
    first = world.append([(b"k1", b"aborted")], producer=(7, 0, 0), transactional=True).header
    marker = world.append_marker(7, 0, commit=False).header
    world.note_aborted(
        AbortedTransaction(
            first.base_offset, marker.base_offset, 7, marker.base_offset + 1
        )
    )
    world.append([(b"k2", b"committed")], producer=(8, 0, 0), transactional=True)
    world.append_marker(8, 0, commit=True)
    world.roll()
    world.clean()
    return world


def dumped_records(log: Path) -> list[Record]:
    """Read a log file by Kafka's tool."""
    output = kafka_tool([DUMP, "--deep-iteration", "--print-data-log", "--files", str(log)]).stdout
    assert "isvalid: true" in output
    assert "isvalid: false" not in output
    assert "Found" not in output, "Kafka tells of invalid bytes or of offsets out of order"
    found = []
    for line in output.splitlines():
        match = _RECORD.search(line)
        if match and "endTxnMarker" not in line:
            offset, timestamp, _, key, value = match.groups()
            found.append(
                Record(
                    int(offset),
                    int(timestamp),
                    key.encode() if key is not None else None,
                    value.encode() if value is not None else None,
                )
            )
    return found


@pytest.mark.kafka
def test_kafka_reads_the_records_of_a_cleaned_segment(tmp_path: Path) -> None:
    world = make_cleaned(tmp_path)
    segment = world.log.segments[0]
    expected = [
        replace(record, headers=())
        for batch in world.batches()
        if not batch.header.is_control
        for record in batch.records
    ]
    assert len(expected) > 100
    assert dumped_records(segment.path(LOG)) == expected


@pytest.mark.kafka
def test_kafka_finds_the_indexes_of_a_cleaned_segment_sane(tmp_path: Path) -> None:
    segment = make_cleaned(tmp_path).log.segments[0]
    assert segment.offset_index.last() is not None
    index, time_index = segment.path(INDEX), segment.path(TIME_INDEX)
    sanity = kafka_tool([DUMP, "--index-sanity-check", "--files", f"{index},{time_index}"]).stdout
    assert sanity.count("passed sanity check") == 2
    # Without that flag the tool compares each entry with the log.
    deep = kafka_tool([DUMP, "--files", f"{index},{time_index}"]).stdout
    assert "Found" not in deep and "mismatch" not in deep.lower()
    assert deep.count("offset:") >= 4


@pytest.mark.kafka
def test_kafka_reads_the_transaction_index_of_a_cleaned_segment(tmp_path: Path) -> None:
    world = make_cleaned(tmp_path)
    dump = kafka_tool([DUMP, "--files", str(world.log.segments[0].path(TXN_INDEX))]).stdout
    marker = next(b.header for b in world.batches() if b.header.is_control)
    assert f"producerId: 7 firstOffset: {marker.base_offset - 1}" in dump
    assert f"lastOffset: {marker.base_offset}" in dump
