"""Apache Kafka's own DumpLogSegments reads what a cleaning leaves behind."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.worlds import EAGER, World
from tests.storage.dump import dump, dump_each

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


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_cleaned(tmp_path_factory.mktemp("cleaned"))


@pytest.fixture(scope="module")
def dumps(cleaned: World) -> dict[Path, str]:
    """What Kafka's tool prints of each file of the first segment, in one run of Java.

    Without other flags the tool compares each entry of an index with the log.
    """
    paths = [cleaned.log.segments[0].path(kind) for kind in (LOG, INDEX, TIME_INDEX, TXN_INDEX)]
    return dump_each(paths, "--deep-iteration", "--print-data-log")


def records_in(output: str) -> list[Record]:
    """Read the records that Kafka's tool has printed."""
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
def test_kafka_reads_the_records_of_a_cleaned_segment(
    cleaned: World, dumps: dict[Path, str]
) -> None:
    expected = [
        replace(record, headers=())
        for batch in cleaned.batches()
        if not batch.header.is_control
        for record in batch.records
    ]
    assert len(expected) > 100
    assert records_in(dumps[cleaned.log.segments[0].path(LOG)]) == expected


@pytest.mark.kafka
def test_kafka_finds_the_indexes_of_a_cleaned_segment_sane(
    cleaned: World, dumps: dict[Path, str]
) -> None:
    segment = cleaned.log.segments[0]
    assert segment.offset_index.last() is not None
    index, time_index = segment.path(INDEX), segment.path(TIME_INDEX)
    sanity = dump([index, time_index], "--index-sanity-check")
    assert sanity.text.count("passed sanity check") == 2
    deep = dumps[index] + dumps[time_index]
    assert "Found" not in deep and "mismatch" not in deep.lower()
    assert deep.count("offset:") >= 4


@pytest.mark.kafka
def test_kafka_reads_the_transaction_index_of_a_cleaned_segment(
    cleaned: World, dumps: dict[Path, str]
) -> None:
    dumped = dumps[cleaned.log.segments[0].path(TXN_INDEX)]
    marker = next(b.header for b in cleaned.batches() if b.header.is_control)
    assert f"producerId: 7 firstOffset: {marker.base_offset - 1}" in dumped
    assert f"lastOffset: {marker.base_offset}" in dumped
