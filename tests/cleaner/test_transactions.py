"""Transactions: aborted ones vanish, markers outlive them by delete.retention.ms."""

from __future__ import annotations

from pathlib import Path

from odradek.cleaner.rules.transactions import CleanedTransactions
from odradek.protocol.control import ControlType
from odradek.storage.segment import TXN_INDEX
from odradek.storage.transactions import AbortedTransaction, parse_aborted
from tests.cleaner.worlds import EAGER, FS, World, pairs

PRODUCER = 7
ABORTED = AbortedTransaction(
    first_offset=10, last_offset=20, producer_id=PRODUCER, last_stable_offset=21
)


def test_a_batch_of_an_aborted_transaction_is_known_until_its_marker() -> None:
    state = CleanedTransactions()
    state.add([ABORTED])
    assert not state.on_data(PRODUCER, 9, is_transactional=True)
    assert state.on_data(PRODUCER, 12, is_transactional=True)
    assert not state.on_data(PRODUCER + 1, 13, is_transactional=True)
    assert not state.on_control(PRODUCER, 20, ControlType.ABORT)
    assert state.take_kept() == [ABORTED]
    assert not state.on_data(PRODUCER, 22, is_transactional=True)


def test_a_marker_whose_transaction_is_gone_can_go() -> None:
    state = CleanedTransactions()
    state.add([ABORTED])
    assert state.on_control(PRODUCER, 20, ControlType.ABORT)
    assert state.take_kept() == []
    assert state.on_control(PRODUCER, 30, ControlType.COMMIT)
    assert state.on_control(PRODUCER, 31, None)


def test_a_commit_marker_stays_while_a_batch_of_its_transaction_does() -> None:
    state = CleanedTransactions()
    state.on_data(PRODUCER, 5, is_transactional=True)
    assert not state.on_control(PRODUCER, 6, ControlType.COMMIT)
    assert state.on_control(PRODUCER, 7, ControlType.COMMIT)  # of the next, empty one


def test_other_control_records_stay() -> None:
    assert not CleanedTransactions().on_control(PRODUCER, 6, ControlType.LEADER_CHANGE)


def aborted_world(path: Path) -> World:
    """p3 and p5 are written in a transaction that is aborted, then p5 outside of it."""
    world = World(path)
    world.append(pairs("p3:committed"))
    world.append(pairs("p3:aborted p5:aborted"), producer=(PRODUCER, 0, 0), transactional=True)
    marker = world.append_marker(PRODUCER, 0, commit=False).header
    world.note_aborted(
        AbortedTransaction(1, marker.base_offset, PRODUCER, marker.base_offset + 1)
    )
    world.append(pairs("p5:plain"))
    world.log.producers.clear()  # the producer is not active any more
    return world


def test_aborted_records_go_at_once_and_hide_no_committed_value(tmp_path: Path) -> None:
    world = aborted_world(tmp_path)
    world.roll()
    result = world.clean()
    assert result is not None and result.removed_aborted_batches == 1
    assert world.values() == ["p3:committed", "p5:plain"]


def test_an_abort_marker_goes_in_steps(tmp_path: Path) -> None:
    world = aborted_world(tmp_path)

    def markers() -> list[bool]:
        return [b.header.has_delete_horizon for b in world.batches() if b.header.is_control]

    def clean_again() -> None:
        world.roll()
        world.append(pairs("other:1"))
        world.roll()
        world.clean()

    clean_again()  # its batches go, it stays, and the index with it
    assert markers() == [False]
    first = world.log.segments[0]
    assert len(parse_aborted(FS.read_bytes(first.path(TXN_INDEX)), Path("x"))) == 1
    clean_again()  # nothing of the transaction is left: stamped
    assert markers() == [True]
    assert not FS.exists(world.log.segments[0].path(TXN_INDEX))
    world.now_ms += EAGER.delete_retention_ms - 1
    clean_again()
    assert markers() == [True]
    world.now_ms += 1
    clean_again()
    assert markers() == []


def test_a_transaction_aborted_after_the_cleaned_range_is_known_within_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(pairs("a:old"))
    world.append(pairs("a:aborted"), producer=(PRODUCER, 0, 0), transactional=True)
    world.roll()
    marker = world.append_marker(PRODUCER, 0, commit=False).header
    world.note_aborted(
        AbortedTransaction(1, marker.base_offset, PRODUCER, marker.base_offset + 1)
    )
    world.log.producers.clear()
    world.clean()
    assert world.values() == ["a:old"]


def test_nothing_is_cleaned_from_an_open_transaction_on(tmp_path: Path) -> None:
    world = World(tmp_path, EAGER)
    world.append(pairs("a:1 b:1"))
    world.append(pairs("a:2"))
    world.roll()
    world.append(pairs("a:3"), producer=(PRODUCER, 0, 0), transactional=True)
    world.append(pairs("b:2"))
    world.append(pairs("b:3"))
    world.roll()
    world.clean()
    assert world.values() == ["b:1", "a:2", "a:3", "b:2", "b:3"]
    world.append_marker(PRODUCER, 0, commit=True)
    world.roll()
    world.clean()
    assert world.values() == ["a:3", "b:3"]
