"""What is proved of a log as it is: damage, doubles, ghosts and lying indexes are found."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.proof.guarantees import Finding
from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.cleaner.proof.soundness import (
    INDEXES_RIGHT,
    INTACT,
    NO_GHOSTS,
    ONE_RECORD,
    prove_clean_section,
    prove_indexes,
)
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from odradek.storage.transactions import AbortedTransaction, pack_aborted
from tests.cleaner.worlds import EAGER, FS, World, pairs

DENSE = replace(EAGER, index_interval_bytes=0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A log of two segments: five batches with an abort among them, and an active one."""
    world = World(tmp_path, DENSE)
    world.append(pairs("a:1 b:1"))
    world.append(pairs("c:1"))
    world.append(pairs("d:1"), producer=(4, 0, 0), transactional=True)
    world.append_marker(4, 0, commit=False)
    world.note_aborted(AbortedTransaction(3, 4, 4, 5))
    world.append(pairs("e:1"))
    world.roll()
    world.append(pairs("f:1"))
    world.append(pairs("g:1"))
    return world


def proved(world: World, checkpoint: int = 0, keys_max: int = 100) -> dict[str, Finding]:
    snapshot = take_snapshot(world.log)
    findings = prove_indexes(snapshot, FS, lambda size: None)
    findings += prove_clean_section(snapshot, checkpoint, lambda size: None, keys_max)
    return {one.name: one for one in findings}


def indexes(world: World) -> Finding:
    return prove_indexes(take_snapshot(world.log), FS, lambda size: None)[1]


def test_a_log_that_nothing_is_wrong_with(world: World) -> None:
    found = proved(world, checkpoint=6)
    assert all(one.violation is None for one in found.values())
    # 4 entries for the batches after the first, as many times, one abort; in the active one 1.
    entries = sum(
        len(world.log.segments[at].path(kind).read_bytes()) // size
        for at in (0, 1)
        for kind, size in ((INDEX, 8), (TIME_INDEX, 12), (TXN_INDEX, 34))
        if world.log.segments[at].path(kind).exists()
    )
    assert found[INDEXES_RIGHT].examined == entries > 6
    assert found[INTACT].examined == 7
    assert found[ONE_RECORD].examined == 4  # not the aborted one


@pytest.mark.parametrize("keys_max", [1, 100])
def test_two_records_of_one_key_in_the_clean_section(world: World, keys_max: int) -> None:
    world.append(pairs("f:2"))
    assert proved(world, 8, keys_max)[ONE_RECORD].violation is None
    found = proved(world, 9, keys_max)
    violation = found[ONE_RECORD].violation
    assert violation is not None and (violation.offset, violation.key) == (6, b"f")
    assert found[NO_GHOSTS].violation is None


@pytest.mark.parametrize("keys_max", [1, 100])
def test_a_record_that_a_later_tombstone_deleted(world: World, keys_max: int) -> None:
    world.append(pairs("f:-"))
    found = proved(world, 9, keys_max)
    violation = found[NO_GHOSTS].violation
    assert violation is not None and (violation.offset, violation.key) == (6, b"f")
    assert found[NO_GHOSTS].examined == 1
    assert found[ONE_RECORD].violation is None


def test_records_before_the_log_start_violate_nothing(world: World) -> None:
    world.append(pairs("f:2"))
    world.log.advance_start_offset(7)
    assert all(one.violation is None for one in proved(world, 9).values())


@pytest.mark.parametrize("at", [0, 70])
def test_a_flipped_bit_is_found(world: World, at: int) -> None:
    path = world.log.segments[0].path(LOG)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    intact, right = prove_indexes(take_snapshot(world.log), FS, lambda size: None)
    assert intact.violation is not None and path.name in intact.violation.text
    assert intact.examined >= 2  # those of the other segment
    assert right.violation is None


@pytest.mark.parametrize(("kind", "layout"), [(INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)])
@pytest.mark.parametrize("number", [0, 1])
def test_an_index_entry_that_lies_is_found(
    world: World, kind: str, layout: struct.Struct, number: int
) -> None:
    path = world.log.segments[number].path(kind)
    entries = list(layout.iter_unpack(path.read_bytes()))
    assert entries
    for at, (key, value) in enumerate(entries):
        # Kafka's offset entries may name a later batch, and time entries a record within one.
        wrong = [(key - 1, value), (key, value + 1) if kind == INDEX else (key + 1, value)]
        for entry in wrong:
            changed = [*entries[:at], entry, *entries[at + 1 :]]
            path.write_bytes(b"".join(layout.pack(*one) for one in changed))
            violation = indexes(world).violation
            assert violation is not None, (entry, entries)
            assert path.name in violation.text
    path.write_bytes(b"".join(layout.pack(*one) for one in entries))
    assert indexes(world).violation is None


def test_entries_about_what_is_not_there_are_found(world: World) -> None:
    segment = world.log.segments[0]
    for kind, entry in (
        (INDEX, OFFSET_ENTRY.pack(100, segment.size_bytes)),
        (TIME_INDEX, TIME_ENTRY.pack(1 << 40, 100)),
        (TXN_INDEX, pack_aborted([AbortedTransaction(3, 100, 4, 5)])),
        (TXN_INDEX, pack_aborted([AbortedTransaction(3, 5, 4, 5)])),
    ):
        path = segment.path(kind)
        intact = path.read_bytes()
        path.write_bytes(intact + entry)
        violation = indexes(world).violation
        assert violation is not None and path.name in violation.text, kind
        path.write_bytes(intact)


def test_records_that_are_appended_meanwhile_violate_nothing(world: World) -> None:
    snapshot = take_snapshot(world.log)
    world.append(pairs("h:1"))
    world.append(pairs("i:1"))
    intact, right = prove_indexes(snapshot, FS, lambda size: None)
    assert intact.violation is right.violation is None
    assert intact.examined == 7
