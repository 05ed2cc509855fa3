"""Logs that older Kafkas began: messages of magic 0 and 1 among batches of magic 2."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import kafka_tool
from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.protocol.legacy import decode_stored
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.index import OFFSET_ENTRY
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from odradek.storage.scan import whole_batches
from odradek.storage.segment import INDEX, LOG, TIME_INDEX, file_name
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.old_logs import (
    FORMATS,
    NOW_MS,
    Written,
    all_records,
    lay_segments,
    random_log,
    write,
)
from tests.storage.partition import TOPIC, Partition

pytestmark = pytest.mark.slow

DATA = Path("/data")
FILES = DATA / f"{TOPIC}-0"
SEEDS = st.integers(0, 1 << 30)
MAGICS = st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2)])


def adopted(
    *segments: list[Written],
    fs: FileSystem | None = None,
    path: Path = DATA,
    was_clean: bool = False,
) -> Partition:
    """Start on segments that were put where a log's were."""
    partition = Partition(fs or CrashFileSystem(), path)
    if was_clean:
        partition.directory.close()
    lay_segments(partition.fs, path / f"{TOPIC}-0", segments)
    return partition.next_life()


def read_records(log: Log, size_max: int = 1 << 20) -> list[Record]:
    """Read all records of a log, as a consumer does."""
    records: list[Record] = []
    offset = log.log_start_offset
    while (found := log.read(offset, size_max, at_least_one=True)) is not None:
        data = memoryview(found.read())
        for position, header in whole_batches(data):
            records += decode_stored(data, position)
            offset = header.next_offset
    return records


@pytest.mark.parametrize("was_clean", [True, False])
@given(seed=SEEDS, magics=MAGICS, count=st.integers(1, 30))
def test_every_record_is_read(was_clean: bool, seed: int, magics: list[int], count: int) -> None:
    written = random_log(seed, count, magics)
    log = adopted(written, was_clean=was_clean).log
    assert log.log_end_offset == written[-1].last_offset + 1
    assert read_records(log) == all_records(written)
    assert read_records(log, size_max=1) == all_records(written)
    assert len(log.producers) == 0


@pytest.mark.parametrize("was_clean", [True, False])
def test_segments_of_each_format_follow_each_other(was_clean: bool) -> None:
    segments: list[list[Written]] = []
    for magics in ((0,), (0, 1), (1,), (1, 2), (2,), (0,)):
        first = segments[-1][-1].last_offset + 1 if segments else 0
        segments.append(random_log(first, 40, magics, first))
    partition = adopted(*segments, was_clean=was_clean)
    assert read_records(partition.log) == all_records(chain(*segments))
    assert read_records(partition.reopen().log) == all_records(chain(*segments))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_log_may_be_smaller_than_a_batchs_header(magic: int) -> None:
    smallest = write(magic, Codec.NONE, [Record(0, NOW_MS, None, None)])
    assert len(smallest.data) < 61
    for was_clean in (True, False):
        log = adopted([smallest], was_clean=was_clean).log
        assert read_records(log) == list(smallest.records)


@given(seed=SEEDS, magics=MAGICS)
def test_a_read_begins_with_the_entry_that_holds_the_offset(seed: int, magics: list[int]) -> None:
    written = random_log(seed, 12, magics)
    log = adopted(written).log
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1, at_least_one=True)
        assert found is not None
        assert found.read() == next(one.data for one in written if one.last_offset >= offset)


@given(seed=SEEDS, magics=MAGICS)
def test_the_first_record_at_or_after_a_timestamp(seed: int, magics: list[int]) -> None:
    written = random_log(seed, 15, magics)
    records = all_records(written)
    partition = adopted(written)
    probes = {r.timestamp + more for r in records for more in (0, 1)} - {-1}
    for log in (partition.log, partition.reopen().log):
        for timestamp in random.Random(seed).sample(sorted(probes), min(len(probes), 10)):
            wanted = next((r for r in records if r.timestamp >= timestamp), None)
            found = log.offset_for_timestamp(timestamp)
            assert (found and (found.offset, found.timestamp)) == (
                wanted and (wanted.offset, wanted.timestamp)
            )
        largest = max(record.timestamp for record in records)
        newest = log.offset_of_max_timestamp()
        has_timestamps = largest >= 0 or written[0].data[16] > 0
        assert (newest and newest.offset) == (
            next(r.offset for r in records if r.timestamp == largest) if has_timestamps else None
        )


def test_records_from_before_leader_epochs_have_none() -> None:
    written = [
        write(1, Codec.GZIP, [Record(0, 10, b"k", b"v"), Record(1, 11, b"k", b"v")]),
        write(2, Codec.NONE, [Record(2, 20, b"k", b"v")]),
    ]
    log = adopted(written).log
    found = [log.offset_for_timestamp(timestamp) for timestamp in (11, 20)]
    assert [(one.offset, one.leader_epoch) for one in found if one] == [(1, -1), (2, 0)]


# --- after a crash -----------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", FORMATS[1], ids=lambda codec: codec.label)
def test_a_torn_last_message_is_cut_off(magic: int, codec: Codec) -> None:
    whole = random_log(magic, 10, (0, 1, 2))
    torn = write(magic, codec, [Record(whole[-1].last_offset + 1, NOW_MS, b"k" * 30, b"v" * 30)])
    for left in range(len(torn.data)):
        fs = CrashFileSystem()
        partition = adopted([*whole, replace(torn, data=torn.data[:left])], fs=fs)
        assert read_records(partition.log) == all_records(whole)
        assert fs.size(partition.log.active.path(LOG)) == sum(len(one.data) for one in whole)
        assert partition.append([(b"k", b"v")]).base_offset == torn.last_offset


@given(seed=SEEDS, magics=MAGICS, data=st.data())
def test_recovery_ends_before_a_flipped_bit(
    seed: int, magics: list[int], data: st.DataObject
) -> None:
    written = random_log(seed, 12, magics)
    hit = data.draw(st.integers(0, len(written) - 1))
    octets = bytearray(written[hit].data)
    # No CRC covers the offset, which must only follow those before it, nor the leader epoch.
    at = data.draw(st.integers(8, len(octets) - 1).filter(lambda at: not 12 <= at < 16))
    octets[at] ^= 1 << data.draw(st.integers(0, 7))
    written[hit] = replace(written[hit], data=bytes(octets))
    assert read_records(adopted(written).log) == all_records(written[:hit])


@given(seed=SEEDS, magics=MAGICS)
def test_offsets_that_go_back_are_cut_off(seed: int, magics: list[int]) -> None:
    written = random_log(seed, 12, magics)
    again = random_log(seed, 1, (0, 1))[:1]
    assert read_records(adopted(written + again).log) == all_records(written)


@given(seed=SEEDS, magics=MAGICS)
def test_records_appended_behind_old_messages_survive_a_crash(
    seed: int, magics: list[int]
) -> None:
    source = random.Random(seed)
    fs = CrashFileSystem()
    written = random_log(seed, 20, magics)
    partition = adopted(written, fs=fs)
    for at in range(source.randrange(1, 40)):  # past the end of the segment, perhaps
        partition.append([(b"new%d" % at, bytes(60))], producer=(5, 0, at))
    partition.flush()
    flushed = read_records(partition.log)
    assert flushed[: len(all_records(written))] == all_records(written)
    partition.append([(b"lost", b"perhaps")])
    survived = partition.next_life(fs.clone_after_crash(seed))
    found = read_records(survived.log)
    assert found[: len(flushed)] == flushed
    assert len(found) <= len(flushed) + 1
    assert [state.producer_id for state in survived.log.producers] == [5]


# --- indexes -----------------------------------------------------------------------------------


def test_an_entry_for_all_that_one_request_brought_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka noted the last offset of a whole message set at the position where it began."""
    messages = [write(0, Codec.NONE, [Record(at, -1, b"k", bytes(40))]) for at in range(90)]
    size = len(messages[0].data)
    partition = Partition(CrashFileSystem())
    partition.directory.close()
    lay_segments(partition.fs, FILES, [messages])
    path = FILES / (file_name(0) + INDEX)
    entries = [OFFSET_ENTRY.pack(at + 9, at * size) for at in range(10, 90, 10)]
    partition.fs.write_bytes(path, b"".join(entries))
    partition.fs.write_bytes(FILES / (file_name(0) + TIME_INDEX), b"")
    log = partition.next_life().log
    for offset in range(90):
        found = log.read(offset, 1, at_least_one=True)
        assert found is not None and found.position == offset * size
    assert "rebuilt" not in caplog.text and "recovered" not in caplog.text
    assert partition.fs.read_bytes(path) == b"".join(entries)


def test_damage_among_old_messages_is_named() -> None:
    written = random_log(3, 30, (0, 1))
    partition = adopted(written)
    position = sum(len(one.data) for one in written[:20])
    file = partition.log.active.log
    file.append(position + 16, (b"\x07",))  # no magic of a message
    with pytest.raises(CorruptFile, match=f"position {position}"):
        read_records(partition.log)


# --- Kafka's tool --------------------------------------------------------------------------------

TOOL = "org.apache.kafka.tools.DumpLogSegments"
_RECORD = re.compile(
    r"\| offset: (\d+) (?:CreateTime|LogAppendTime|NoTimestampType): (-?\d+) "
    r".*?(?: key: (\S*))?(?: payload: (\S*))?$"
)


@pytest.mark.kafka
@pytest.mark.parametrize("magics", [(0,), (1,), (0, 1, 2)])
def test_kafkas_tool_lists_the_same_records(magics: tuple[int, ...], tmp_path: Path) -> None:
    written = random_log(11, 150, magics)
    partition = adopted(written, fs=RealFileSystem(), path=tmp_path)
    segment = partition.log.active
    dumped = kafka_tool(
        [TOOL, "--deep-iteration", "--print-data-log", "--files", str(segment.path(LOG))]
    ).stdout
    assert dumped.count("isvalid: true") == len(written)
    assert "isvalid: false" not in dumped and "invalid bytes" not in dumped
    found = []
    for line in dumped.splitlines():
        match = _RECORD.search(line)
        if match:
            offset, timestamp, key, value = match.groups()
            found.append((int(offset), int(timestamp), key, value))
    assert found == [
        (r.offset, r.timestamp, text(r.key), text(r.value)) for r in read_records(partition.log)
    ]


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


@pytest.mark.kafka
def test_kafkas_tool_finds_the_indexes_sane(tmp_path: Path) -> None:
    partition = adopted(random_log(12, 300), fs=RealFileSystem(), path=tmp_path)
    segment = partition.log.active
    assert segment.offset_index.last() is not None
    paths = f"{segment.path(INDEX)},{segment.path(TIME_INDEX)}"
    sanity = kafka_tool([TOOL, "--index-sanity-check", "--files", paths]).stdout
    assert sanity.count("passed sanity check") == 2
    done = kafka_tool([TOOL, "--verify-index-only", "--files", paths])
    assert done.stderr == ""
