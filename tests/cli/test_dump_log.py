"""odradek dump-log: what it prints of the files of Odradek and of Apache Kafka, and of damage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.processes import ROOT, KafkaProcess
from odradek.cli.dump_rows import Wanted, reader_of
from odradek.cli.main import main
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from tests.storage.dump import dump, dump_each, segment_files
from tests.storage.partition import Partition
from tests.storage.test_dump_log_segments import STATES, appended
from tests.storage.transactional import end, write

Rows = Sequence[Mapping[str, Any]]


def dump_log(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dump-log", *map(str, arguments)])


def rows(*arguments: object, kind: str | None = None) -> Rows:
    """Return what an intact file or directory has in it."""
    result = dump_log(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [one for one in found if kind in (None, one["kind"])]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = Partition(RealFileSystem(), tmp_path)
    for at in range(30):
        records = [(b"key %d" % at, b"value"), (None, None), (b"\xff", b"\x00\xfe")]
        made.append(records, codec=list(Codec)[at % len(Codec)])
        made.clock.advance(10)
    return made


def test_the_reader_of_a_pipe_may_have_enough(tmp_path: Path) -> None:
    """A pipe holds 64 KiB: what is printed is more, and its reader is gone."""
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(f"0\n20000\n{''.join(f'{n} {n}{chr(10)}' for n in range(20000))}")
    command = [sys.executable, "-m", "odradek.cli.main", "dump-log", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_each_batch_is_a_row_and_each_record_one_when_asked(partition: Partition) -> None:
    directory = partition.log.directory
    found = rows(directory, "--records")
    batches = [one for one in found if one["kind"] == "batch"]
    stored = partition.batches()
    assert [(one["base_offset"], one["last_offset"], one["size"]) for one in batches] == [
        (one.base_offset, one.last_offset, len(one.data)) for one in stored
    ]
    assert all(one["crc_ok"] and one["count"] == 3 for one in batches)
    assert {one["codec"] for one in batches} == {codec.label for codec in Codec}
    records = [one for one in found if one["kind"] == "record"]
    assert [one["offset"] for one in records] == list(range(90))
    assert records[3]["key"] == "key 1" and records[3]["value"] == "value"
    assert records[4]["key"] is None and records[4]["value"] is None
    assert records[5]["key_base64"] == "/w==" and records[5]["value_base64"] == "AP4="
    assert not [one for one in rows(directory) if one["kind"] == "record"]


def test_a_person_sees_a_table(partition: Partition) -> None:
    segment = partition.log.segments[0].path(LOG)
    shown = dump_log(segment, "--records").output
    assert shown.startswith(f"{segment}\n")
    assert re.search(r"^ +0 +0 +2 +3 +\d+ +none +0 +- +- +\S+Z +ok$", shown, re.M)
    assert re.search(r"^ +0 +\S+Z +key key 0 +value value$", shown, re.M)
    assert re.search(r"^ +2 +\S+Z +key base64:/w== +value base64:AP4=$", shown, re.M)


def test_indexes_checkpoints_and_metadata_are_shown(partition: Partition) -> None:
    partition.directory.close()
    first = partition.log.segments[0]
    entries = rows(first.path(INDEX), "--deep")
    offsets, positions = first.offset_index.entries.load()
    assert [(one["offset"], one["position"]) for one in entries] == list(
        zip(offsets, positions, strict=True)
    )
    assert len(entries) > 3
    assert rows(first.path(TIME_INDEX), "--deep")[-1]["offset"] <= partition.log.log_end_offset
    found = {one["kind"]: one for one in rows(partition.path, "--deep")}
    assert found["leader epoch"] == {
        "file": str(partition.log.directory / "leader-epoch-checkpoint"),
        "kind": "leader epoch", "epoch": 0, "start_offset": 0,
    }  # fmt: skip
    assert found["partition metadata"]["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert found["checkpoint"]["topic"] == "orders"
    assert found["meta.properties"]["cluster.id"] == "c"


def test_transactions_are_shown(tmp_path: Path) -> None:
    partition = Partition(RealFileSystem(), tmp_path)
    write(partition, 7, 0, 0, b"v")
    end(partition, 7, 0, commit=False)
    write(partition, 7, 0, 1, b"v")
    partition.directory.close()
    segment = partition.log.segments[0]
    [aborted] = rows(segment.path(TXN_INDEX))
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 0, 1)
    control = [one for one in rows(segment.path(LOG), "--records") if one.get("control")]
    assert [(one["offset"], one["control"]) for one in control] == [(1, "abort")]
    [producer] = rows(segment_files([tmp_path], SNAPSHOT)[-1])
    assert producer["transaction_first_offset"] == 2


# --- damage -----------------------------------------------------------------------------------


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_damage_is_a_line_and_what_can_be_read_is_printed(partition: Partition) -> None:
    segment = partition.log.segments[0].path(LOG)
    before = rows(segment)
    broken = before[2]
    flip(segment, broken["position"] + 70)
    result = dump_log(segment, "--json")
    assert result.exit_code == 1
    assert result.stderr == (
        f"odradek: {segment} is damaged at position {broken['position']}, offset "
        f"{broken['base_offset']}: the CRC does not match the bytes\n"
    )
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["crc_ok"] for one in found] == [at != 2 for at in range(len(before))]
    assert "WRONG" in dump_log(segment).stdout


def test_a_length_that_is_broken_costs_its_batch_only(partition: Partition) -> None:
    segment = partition.log.segments[0].path(LOG)
    before = rows(segment)
    flip(segment, before[2]["position"] + 8)
    result = dump_log(segment, "--json", "--records")
    offsets = [row["base_offset"] for row in map(json.loads, result.stdout.splitlines())
               if row["kind"] == "batch"]  # fmt: skip
    assert offsets == [one["base_offset"] for at, one in enumerate(before) if at != 2]
    position, offset = before[2]["position"], before[2]["base_offset"]
    assert f"position {position}, offset {offset}: no batch in " in result.stderr
    assert result.stderr.count("\n") == 1 and result.exit_code == 1


def test_a_torn_tail_is_reported(partition: Partition) -> None:
    segment = partition.log.active.path(LOG)
    last = rows(segment)[-1]
    segment.write_bytes(segment.read_bytes()[:-5])
    result = dump_log(segment, "--json")
    assert f"position {last['position']}, offset {last['base_offset']}: no whole batch" in (
        result.stderr
    )
    assert result.exit_code == 1


def test_an_index_that_contradicts_the_log_is_reported_when_asked(partition: Partition) -> None:
    partition.directory.close()
    first = partition.log.segments[0]
    for suffix, position, words in (
        (INDEX, 7, "where the log has no batch"),
        (TIME_INDEX, 7, "where the batch has"),
    ):
        path = first.path(suffix)
        data = bytearray(path.read_bytes())
        data[position] += 1
        path.write_bytes(data)
        assert dump_log(path).exit_code == 0
        result = dump_log(path, "--deep")
        assert result.exit_code == 1
        assert f"{path} is damaged at position 0, offset " in result.stderr
        assert words in result.stderr
    first.path(LOG).unlink()
    assert "there is no log beside it" in dump_log(first.path(INDEX), "--deep").stderr


def test_damage_in_one_file_keeps_no_other_from_being_shown(partition: Partition) -> None:
    partition.directory.close()
    checkpoint = partition.path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n2\norders 0 1\n")
    result = dump_log(partition.path)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"{checkpoint} is damaged at position 2" in result.stderr
    assert "replication-offset-checkpoint" in result.stdout


def test_nothing_is_changed(partition: Partition) -> None:
    partition.directory.close()
    flip(partition.log.segments[0].path(LOG), 70)
    partition.log.segments[1].path(INDEX).write_bytes(b"rubbish")
    before = contents(partition.path)
    dump_log(partition.path, "--deep", "--records")
    assert contents(partition.path) == before


def contents(path: Path) -> dict[Path, tuple[int, bytes]]:
    files = (one for one in sorted(path.rglob("*")) if one.is_file())
    return {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in files}


def test_a_file_that_dump_log_cannot_read_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    result = dump_log(tmp_path / "notes.txt")
    assert result.exit_code == 1 and "not a file that dump-log can read" in result.stderr
    result = dump_log(tmp_path)
    assert result.exit_code == 1 and "has no segments or checkpoints" in result.stderr


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    size_bytes = 48 << 20
    path = tmp_path / f"{0:020}.log"
    value = bytes(100_000)
    with path.open("wb") as file:
        offset = 0
        while file.tell() < size_bytes:
            file.write(encode_batch([Record(offset, 1, b"k", value)], base_offset=offset))
            offset += 1
    reader = reader_of(path)
    assert reader is not None
    tracemalloc.start()
    try:
        count = sum(1 for _ in reader(RealFileSystem(), path, Wanted(records=True)))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2 * offset
    assert peak_bytes < size_bytes / 3


# --- beside Kafka's ---------------------------------------------------------------------------

_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (-?\d+) .*?producerId: (-?\d+) .*?"
    r"isTransactional: (\w+) isControl: (\w+) .*?position: (\d+) (?:CreateTime|LogAppendTime): "
    r"(-?\d+) size: (\d+) magic: (\d) compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)
_RECORD = re.compile(r"^\| offset: (\d+) .*? keySize: (-?\d+) valueSize: (-?\d+)", re.M)


def as_kafka(found: Rows) -> list[tuple[str, ...]]:
    """Write batches as Kafka's tool does."""
    return [
        tuple(
            str(one).lower()
            for one in (
                row["base_offset"], row["last_offset"], row["count"],
                -1 if row["producer_id"] is None else row["producer_id"],
                row["is_transactional"], row["is_control"], row["position"],
                row["max_timestamp"], row["size"], row["magic"], row["codec"], row["crc"],
                row["crc_ok"],
            )
        )
        for row in found
    ]  # fmt: skip


def sizes(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    if value is None:
        encoded = row.get(f"{name}_base64")
        return -1 if encoded is None else len(b64decode(encoded))
    return len(value.encode())


def assert_as_kafkas_tool(files: Sequence[Path]) -> None:
    texts = dump_each(files, "--deep-iteration")
    for file in files:
        text = texts[file]
        assert as_kafka(rows(file, kind="batch")) == [m.groups() for m in _BATCH.finditer(text)]
        records = rows(file, "--records", kind="record")
        assert [
            (str(one["offset"]), str(sizes(one, "key")), str(sizes(one, "value")))
            for one in records
        ] == [m.groups() for m in _RECORD.finditer(text)]


@pytest.mark.kafka
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_our_files_are_shown_as_by_kafkas_tool(tmp_path: Path, state: Any) -> None:
    partition = state(tmp_path)
    assert_as_kafkas_tool(segment_files([tmp_path], LOG)[:3])
    assert dump_log(partition.path, "--deep").exit_code == 0


@pytest.mark.kafka
def test_kafkas_files_are_shown_as_by_its_tool(kafka: KafkaProcess) -> None:
    from confluent_kafka import Consumer, Producer

    settings = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    producer = Producer({**settings, "transactional.id": "a", "compression.type": "lz4"})
    producer.init_transactions()
    for is_committed in (True, False, True):
        producer.begin_transaction()
        for at in range(200):
            producer.produce("orders", b"value %d" % at, key=b"key")
        producer.flush()
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    kafka.stop()
    logs = segment_files([kafka.data], LOG)
    assert_as_kafkas_tool([one for one in logs if one.stat().st_size][:10])
    assert dump_log(kafka.data, "--deep").exit_code == 0
    found = rows(kafka.data, "--records")
    decoded = [one["decoded"] for one in found if one.get("decoded")]
    assert {"offset", "group", "transaction"} <= {one["type"] for one in decoded}
    [aborted] = [one for one in found if one["kind"] == "aborted transaction"]
    assert aborted["last_offset"] - aborted["first_offset"] == 200


@pytest.mark.kafka
def test_damage_is_found_where_kafkas_tool_finds_it(tmp_path: Path) -> None:
    partition = appended(tmp_path)
    segment = partition.log.segments[0].path(LOG)
    broken = rows(segment)[5]
    flip(segment, broken["position"] + 70)
    wrong = [m for m in _BATCH.finditer(dump([segment]).text) if m[13] == "false"]
    assert [int(one[7]) for one in wrong] == [broken["position"]]
    assert f"position {broken['position']}, " in dump_log(segment).stderr


def test_each_kind_of_file_has_a_reader() -> None:
    names = (
        ["0.log", "0.index", "0.timeindex", "0.txnindex", "0.snapshot", "meta.properties"]
        + ["leader-epoch-checkpoint", "partition.metadata", "cleaner-offset-checkpoint"]
        + ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
        + ["log-start-offset-checkpoint", "0.log.deleted", "0.log.cleaned", "0.index.swap"]
    )
    assert all(reader_of(Path(name)) for name in names)
    assert reader_of(Path("odradek.db")) is None
