"""The end of each transaction is found by its markers, wherever in the partition they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the pipeline extra")

from odradek.pipeline import segment_batches
from odradek.pipeline.errors import PipelineError
from odradek.protocol.batches import Record, empty_batch, encode_batch, read_header
from odradek.protocol.compression import Codec
from odradek.protocol.control import encode_end_txn_marker
from tests.pipeline.segments import partition_folder, read, write_log

# What a producer does next: its number, and to write, commit or abort; 0 writes without one.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("wwwca")), min_size=1, max_size=25)


def data(offset: int, producer: int, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(
        [Record(offset, 1, b"k", b"v")],
        base_offset=offset,
        codec=codec,
        producer_id=producer or -1,
        transactional=producer > 0,
    )


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    return encode_end_txn_marker(
        commit=commit,
        timestamp=1,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=offset,
    )


def play(steps: list[tuple[int, str]]) -> tuple[list[bytes], dict[int, bool | None]]:
    """Return the batches of a log and, for each offset, whether it was aborted in the end."""
    batches: list[bytes] = []
    fates: dict[int, bool | None] = {}
    open_offsets: dict[int, list[int]] = {}
    for offset, (producer, step) in enumerate(steps):
        if producer == 0 or step == "w":
            batches.append(data(offset, producer))
            fates[offset] = None if producer else False
            open_offsets.setdefault(producer, []).append(offset)
            continue
        batches.append(marker(offset, producer, commit=step == "c"))
        for ended in (*open_offsets.pop(producer, []), offset):
            fates[ended] = step == "a"
    return batches, fates


@given(STEPS, st.lists(st.integers(1, 24), max_size=4), st.booleans())
def test_a_batch_has_the_fate_of_the_transaction_that_its_producers_next_marker_ends(
    steps: list[tuple[int, str]], cuts: list[int], small_chunks: bool
) -> None:
    batches, fates = play(steps)
    controls = {at for at, batch in enumerate(batches) if read_header(batch).is_control}
    with partition_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_batches, "CHUNK_BYTES", 100 if small_chunks else 10_000)
        write_log(folder, batches, cuts)
        everything = read(folder, includeControl="true", columns="offset,aborted,control")
        assert {row["offset"]: row["aborted"] for row in everything} == fates
        assert {row["offset"] for row in everything if row["control"]} == controls
        records = read(folder, columns="offset")
        assert {row["offset"] for row in records} == fates.keys() - controls
        committed = read(folder, columns="offset", isolation="read_committed")
        expected = {at for at, aborted in fates.items() if aborted is False} - controls
        assert {row["offset"] for row in committed} == expected
        # Where a reading begins changes no fate.
        half = len(steps) // 2
        later = read(folder, columns="offset,aborted", startingOffset=half)
        assert all(row["aborted"] == fates[row["offset"]] for row in later)


def test_segments_without_transactions_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.pipeline import segment_transactions

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(segment_transactions, "read_chunks", refuse)
    write_log(tmp_path / "orders-0", [data(0, 0), data(1, 0)], [1])
    assert [row["aborted"] for row in read(tmp_path)] == [False, False]
    write_log(tmp_path / "others-0", [data(0, 1)])
    # Nobody has asked for it.
    assert len(read(tmp_path, columns="offset")) == 3


def test_later_segments_are_read_as_far_as_the_last_marker_that_is_wanted(tmp_path: Path) -> None:
    batches = [data(0, 1), data(1, 0), marker(2, 1, commit=False), data(3, 0)]
    written = write_log(tmp_path / "orders-0", batches, [1, 2, 3])
    written[3].path.write_bytes(b"none of it is read")
    rows = read(tmp_path, endingOffset=1, columns="offset,aborted")
    assert rows == [{"offset": 0, "aborted": True}]


def test_a_marker_in_a_damaged_segment_is_not_taken_for_none(tmp_path: Path) -> None:
    batches = [data(0, 1), data(1, 0), marker(2, 1, commit=False)]
    written = write_log(tmp_path / "orders-0", batches, [1])
    damaged = bytearray(written[1].path.read_bytes())
    damaged[16] = 9
    written[1].path.write_bytes(damaged)
    with pytest.raises(PipelineError, match="offset 1: a batch of a format other"):
        read(tmp_path, endingOffset=1)
    (row,) = read(tmp_path, endingOffset=1, onDamage="skip")
    assert row["aborted"] is True


def test_the_remains_of_a_cleaned_transaction_are_read(tmp_path: Path) -> None:
    gone = marker(3, 1, commit=False)
    batches = [
        data(0, 1),
        marker(1, 1, commit=True),
        empty_batch(read_header(data(2, 1))),
        empty_batch(read_header(gone)),
        data(4, 1, Codec.ZSTD),
        marker(5, 1, commit=False),
    ]
    write_log(tmp_path / "orders-0", batches)
    rows = read(tmp_path, columns="offset,aborted", includeControl="true")
    fates = {row["offset"]: row["aborted"] for row in rows}
    assert fates == {0: False, 1: False, 4: True, 5: True}


def test_control_records_of_another_kind_end_nothing(tmp_path: Path) -> None:
    leader_change = encode_batch(
        [Record(1, 1, b"\x00\x00\x00\x02", b"")], base_offset=1, control=True
    )
    unknown = encode_batch(
        [Record(2, 1, b"\x00\x00\x00\x63", b"")],
        base_offset=2,
        control=True,
        transactional=True,
        producer_id=1,
    )
    batches = [data(0, 1), leader_change, unknown, marker(3, 1, commit=False)]
    write_log(tmp_path / "orders-0", batches)
    rows = read(tmp_path, columns="offset,aborted,control", includeControl="true")
    assert [row["aborted"] for row in rows] == [True, False, True, True]
    assert [row["control"] for row in rows] == [False, True, True, True]
