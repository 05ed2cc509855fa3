"""The rows of segments: complete up to the stored offset, changed by leaders only, freed once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.catalog.garbage_rows import forget_garbage
from odradek.broker.catalog.segment_rows import (
    NotLed,
    SegmentGap,
    SegmentRow,
    StoredLog,
    add_segments,
    exchange_segments,
    note_cleaner_offsets,
    raise_log_start,
)
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.ids import Partition
from odradek.storage.errors import StaleSegments
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.segment_shelf import TOPIC, Shelf, row
from tests.broker.segment_shelf import shelf as shelf

OTHER = b"x" * 16
ONE, TWO = (TOPIC, 0), (TOPIC, 1)
RAISE_EPOCH = (
    "UPDATE partition SET leader_epoch = leader_epoch + 1 WHERE topic_id = ? AND number = ?"
)


def test_segments_are_returned_in_the_order_of_their_offsets(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 100, 300, "b"), row(ONE, 0, 100, "a"), row(TWO, 0, 5, "a"))
    shelf.add(session, row(ONE, 300, 310, "c", is_open=True))
    assert shelf.stored(TWO, ONE, (OTHER, 0)) == {
        ONE: StoredLog(
            310,
            0,
            (
                row(ONE, 0, 100, "a"),
                row(ONE, 100, 300, "b"),
                row(ONE, 300, 310, "c", is_open=True),
            ),
        ),
        TWO: StoredLog(5, 0, (row(TWO, 0, 5, "a"),)),
    }
    assert shelf.due() == []


def test_one_call_takes_the_segments_of_many_partitions(shelf: Shelf) -> None:
    session, count = shelf.session(), 1_100
    shelf.create_topic(OTHER, count)
    partitions = [(OTHER, number) for number in range(count)]
    shelf.add(session, *(row(one, 0, 10 + one[1], "pack") for one in partitions))
    stored = shelf.stored(*partitions)
    assert [stored[one].stored_offset for one in partitions] == [10 + n for n in range(count)]
    shelf.add(session, *(row(one, 10 + one[1], 2_000, "later") for one in partitions))
    shelf.raise_log_start(session, {one: 10 + one[1] for one in partitions[:-1]})
    stored = shelf.stored(*partitions)
    assert [stored[one].segments[0] for one in partitions] == [
        *(row(one, 10 + one[1], 2_000, "later") for one in partitions[:-1]),
        row(partitions[-1], 0, 10 + count - 1, "pack"),
    ]
    assert shelf.due() == []
    shelf.raise_log_start(session, {partitions[-1]: 10 + count})
    assert shelf.due() == ["pack"]


def test_the_upload_of_a_grown_segment_replaces_the_one_before(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 100, "first", is_open=True))
    for _ in range(2):  # the answer may be lost
        shelf.add(session, row(ONE, 0, 200, "second"))
    assert shelf.stored(ONE) == {ONE: StoredLog(200, 0, (row(ONE, 0, 200, "second"),))}
    assert shelf.noted() == {"first": 1_000}


def test_a_segment_is_not_replaced_by_one_with_fewer_records(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 200, "longer"), row(TWO, 0, 1, "longer"))
    with pytest.raises(StaleSegments, match="ends at offset 200 in the catalog"):
        shelf.add(session, row(ONE, 0, 100, "shorter"), row(TWO, 1, 2, "shorter"))
    assert shelf.stored(ONE)[ONE].segments == (row(ONE, 0, 200, "longer"),)
    assert shelf.stored(TWO)[TWO].stored_offset == 1


def test_the_stored_offset_passes_no_gap(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 100, "a"))
    for rows in ([row(ONE, 101, 200, "b")], [row(ONE, 100, 110, "b"), row(ONE, 120, 200, "b")]):
        with pytest.raises(SegmentGap, match="partition 0 of the topic"):
            shelf.add(session, *rows)
        assert shelf.stored(ONE) == {ONE: StoredLog(100, 0, (row(ONE, 0, 100, "a"),))}
    shelf.raise_log_start(session, {ONE: 150})  # records below are deleted
    shelf.add(session, row(ONE, 150, 200, "b"), row(ONE, 200, 201, "b"))
    assert shelf.stored(ONE)[ONE].stored_offset == 201


def test_the_stored_offset_never_goes_back(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 100, "a"), row(ONE, 100, 200, "b"))
    shelf.add(session, row(ONE, 0, 100, "again"))
    stored = shelf.stored(ONE)[ONE]
    assert stored == StoredLog(200, 0, (row(ONE, 0, 100, "again"), row(ONE, 100, 200, "b")))


def test_only_the_leader_changes_segments(shelf: Shelf) -> None:
    leader, other = shelf.session(1), shelf.session(2)
    shelf.add(leader, row(ONE, 0, 100, "a"))
    shelf.create_topic(OTHER, 1, leader=2)
    gone = (b"g" * 16, 7)
    with pytest.raises(NotLed, match=f"partition 7 of .* {gone[0].hex()} and 1 other") as caught:
        shelf.add(other, row(ONE, 100, 200, "b"), row((OTHER, 0), 0, 1, "b"), row(gone, 0, 1, "b"))
    assert caught.value.partitions == {ONE, gone}
    with pytest.raises(NotLed):
        shelf.exchange(other, ONE, [(0, "a")], row(ONE, 0, 100, "c"))
    with pytest.raises(NotLed):
        shelf.raise_log_start(other, {ONE: 50})
    assert shelf.stored(ONE, (OTHER, 0)) == {
        ONE: StoredLog(100, 0, (row(ONE, 0, 100, "a"),)),
        (OTHER, 0): StoredLog(0, 0, ()),
    }


def test_a_leader_changes_segments_in_its_epoch_alone(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 100, "a"))
    led = shelf.led(session, ONE)
    key = [(0, "a")]
    shelf.engine.transact(lambda to: to.execute(RAISE_EPOCH, ONE))  # another one has led it
    for change in (
        lambda to: add_segments(to, shelf.engine, led, [row(ONE, 0, 100, "b")]),
        lambda to: exchange_segments(to, shelf.engine, led, ONE, key, [row(ONE, 0, 100, "b")]),
        lambda to: raise_log_start(to, shelf.engine, led, {ONE: 50}),
        lambda to: note_cleaner_offsets(to, shelf.engine, led, {ONE: 50}),
    ):
        with pytest.raises(NotLed):
            shelf.touch(change)
    assert shelf.stored(ONE) == {ONE: StoredLog(100, 0, (row(ONE, 0, 100, "a"),))}
    shelf.add(session, row(ONE, 0, 100, "b"))
    assert shelf.stored(ONE) == {ONE: StoredLog(100, 0, (row(ONE, 0, 100, "b"),))}


def test_a_closed_session_changes_nothing(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 100, "a"))
    shelf.close_session(session)
    for change in (
        lambda: shelf.add(session, row(ONE, 100, 200, "b")),
        lambda: shelf.exchange(session, ONE, [(0, "a")], row(ONE, 0, 100, "c")),
        lambda: shelf.raise_log_start(session, {ONE: 50}),
    ):
        with pytest.raises(SessionClosed):
            change()
    assert shelf.stored(ONE) == {ONE: StoredLog(100, 0, (row(ONE, 0, 100, "a"),))}


def test_an_exchange_replaces_just_the_given_segments(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(
        session,
        *(row(ONE, base, base + 10, f"{base}") for base in range(0, 40, 10)),
        row(TWO, 0, 5, "10"),
    )
    for _ in range(2):  # the answer may be lost
        shelf.exchange(session, ONE, [(10, "10"), (20, "20")], row(ONE, 10, 30, "merged"))
        assert shelf.stored(ONE)[ONE] == StoredLog(
            40, 0, (row(ONE, 0, 10, "0"), row(ONE, 10, 30, "merged"), row(ONE, 30, 40, "30"))
        )
    assert shelf.due() == ["20"]
    shelf.exchange(session, ONE, [(0, "0"), (10, "merged")], row(ONE, 0, 30, "merged"))
    assert shelf.due() == ["0", "20"]


@pytest.mark.parametrize(
    "old", [[(0, "0"), (10, "x")], [(0, "0"), (20, "10")], [(0, "0"), (10, "10"), (15, "10")]]
)
def test_an_exchange_of_a_segment_that_is_not_current_is_refused(
    shelf: Shelf, old: list[tuple[int, str]]
) -> None:
    session = shelf.session()
    rows = row(ONE, 0, 10, "0"), row(ONE, 10, 20, "10")
    shelf.add(session, *rows)
    with pytest.raises(StaleSegments, match="partition 0"):
        shelf.exchange(session, ONE, old, row(ONE, 0, 20, "new"))
    assert shelf.stored(ONE)[ONE].segments == rows
    assert shelf.noted() == {}


def test_a_repeated_exchange_is_refused_when_its_segments_are_replaced(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "a"))
    shelf.exchange(session, ONE, [(0, "a")], row(ONE, 0, 10, "b"))
    shelf.exchange(session, ONE, [(0, "b")], row(ONE, 0, 10, "c"))
    with pytest.raises(StaleSegments):
        shelf.exchange(session, ONE, [(0, "a")], row(ONE, 0, 10, "b"))
    assert shelf.stored(ONE)[ONE].segments == (row(ONE, 0, 10, "c"),)


def test_segments_wholly_below_the_log_start_offset_go(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, *(row(ONE, base, base + 10, f"{base}") for base in range(0, 40, 10)))
    shelf.add(session, row(TWO, 0, 10, "0"))
    shelf.raise_log_start(session, {ONE: 25, TWO: 5})
    shelf.raise_log_start(session, {ONE: 12})  # it never goes back
    assert shelf.stored(ONE, TWO) == {
        ONE: StoredLog(40, 25, (row(ONE, 20, 30, "20"), row(ONE, 30, 40, "30"))),
        TWO: StoredLog(10, 5, (row(TWO, 0, 10, "0"),)),
    }
    assert shelf.due() == ["10"]


def test_the_last_segment_stays_until_there_is_a_later_one(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, *(row(ONE, base, base + 10, f"{base}") for base in range(0, 40, 10)))
    shelf.raise_log_start(session, {ONE: 40})
    assert shelf.stored(ONE) == {ONE: StoredLog(40, 40, (row(ONE, 30, 40, "30"),))}
    assert shelf.due() == ["0", "10", "20"]
    shelf.add(session, row(ONE, 40, 40, "empty", is_open=True))
    empty = row(ONE, 40, 40, "empty", is_open=True)
    assert shelf.stored(ONE) == {ONE: StoredLog(40, 40, (empty,))}
    assert shelf.due() == ["0", "10", "20", "30"]


def test_a_segment_whose_records_were_deleted_during_its_upload_goes(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.raise_log_start(session, {ONE: 100})
    shelf.add(session, row(ONE, 0, 100, "late"))
    assert shelf.stored(ONE) == {ONE: StoredLog(100, 100, (row(ONE, 0, 100, "late"),))}
    shelf.add(session, row(ONE, 100, 110, "current"))
    assert shelf.stored(ONE) == {ONE: StoredLog(110, 100, (row(ONE, 100, 110, "current"),))}
    assert shelf.due() == ["late"]


def test_a_deleted_topic_leaves_its_keys_as_garbage(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.create_topic(OTHER, 1)
    shelf.add(session, row(ONE, 0, 10, "a"), row(TWO, 0, 10, "a"), row(TWO, 10, 20, "shared"))
    shelf.add(session, row((OTHER, 0), 0, 10, "shared"))
    shelf.delete_topic(TOPIC)
    assert shelf.stored(ONE, TWO) == {}
    assert shelf.noted() == {"a": 200, "shared": 100}
    assert shelf.due() == ["a"]
    with pytest.raises(NotLed):
        shelf.add(session, row(ONE, 10, 20, "b"))
    shelf.delete_topic(OTHER)
    assert shelf.due() == ["a", "shared"]


def test_garbage_is_due_once_it_is_old_and_until_it_is_forgotten(shelf: Shelf) -> None:
    session = shelf.session()
    for key in ("a", "b", "c", "d"):
        shelf.add(session, row(ONE, 0, 10, key))
    assert shelf.due(age_ms=60_000) == []
    older = "UPDATE garbage SET noted_ms = noted_ms - 60000 WHERE key IN ('a', 'b')"
    shelf.touch(lambda to: to.execute(older))
    assert shelf.due(age_ms=60_000) == ["a", "b"]
    assert shelf.due(count_max=1) == ["a"]
    shelf.touch(lambda to: forget_garbage(to, ["a", "c"]))
    assert shelf.due() == ["b"]


def test_garbage_waits_again_after_the_clock_has_gone_back(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "a"))
    shelf.add(session, row(ONE, 0, 10, "b"))
    later = "UPDATE garbage SET noted_ms = noted_ms + 1000000"
    shelf.touch(lambda to: to.execute(later))
    assert shelf.due(age_ms=100_000) == []
    assert shelf.due() == ["a"]


def test_a_note_on_a_key_that_rows_name_goes_and_comes_with_the_last_row(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "shared"), row(TWO, 0, 10, "shared"))
    shelf.exchange(session, ONE, [(0, "shared")], row(ONE, 0, 10, "own"))
    assert shelf.noted() == {"shared": 100}
    assert shelf.due(age_ms=60_000) == []
    assert shelf.noted() == {"shared": 100}
    assert shelf.due() == []
    assert shelf.noted() == {}
    shelf.exchange(session, TWO, [(0, "shared")], row(TWO, 0, 10, "own"))
    assert shelf.due() == ["shared"]


class Model:
    """Rows in a dict: what the tables should have."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Partition, int], SegmentRow] = {}
        self.ends = {ONE: 0, TWO: 0}
        self.starts = {ONE: 0, TWO: 0}
        self.keys: set[str] = set()

    def of(self, partition: Partition) -> list[SegmentRow]:
        return [one for (key, _), one in sorted(self.rows.items()) if key == partition]

    def drop_deleted(self) -> None:
        """Forget the rows wholly below a log start offset, but for a partition's last one."""
        for partition, start in self.starts.items():
            for one in self.of(partition)[:-1]:
                if one.next_offset <= start:
                    del self.rows[partition, one.base_offset]

    def stored(self) -> dict[Partition, StoredLog]:
        return {
            one: StoredLog(self.ends[one], self.starts[one], tuple(self.of(one)))
            for one in (ONE, TWO)
        }


steps = st.lists(
    st.tuples(
        st.sampled_from(("grow", "seal", "merge", "trim", "pack")),
        st.sampled_from((ONE, TWO)),
        st.integers(1, 40),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(steps)
def test_a_key_is_due_just_when_no_row_names_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Partition, int]]
) -> None:
    shelf, model = Shelf(f"sqlite://{new_file(tmp_path_factory)}"), Model()
    shelf.create_topic(TOPIC, 2)
    session = shelf.session()

    def put(*rows: SegmentRow) -> None:
        model.rows |= {(one.partition, one.base_offset): one for one in rows}
        for one in rows:
            model.ends[one.partition] = max(model.ends[one.partition], one.next_offset)
            model.keys.add(one.key)

    for number, (kind, partition, size) in enumerate(steps):
        key, present = f"{number:03}", model.of(partition)
        if kind == "pack":  # both partitions in one object
            rows = [row(one, end, end + size, key) for one, end in model.ends.items()]
            shelf.add(session, *rows)
            put(*rows)
        elif kind in ("grow", "seal"):
            base, end = model.ends[partition], model.ends[partition]
            if present and present[-1].is_open:
                base = present[-1].base_offset
            made = row(partition, base, end + size, key, is_open=kind == "grow")
            shelf.add(session, made)
            put(made)
        elif kind == "trim":
            start = min(model.starts[partition] + size, model.ends[partition])
            shelf.raise_log_start(session, {partition: start})
            model.starts[partition] = start
        elif present:
            first, *others = old = present[: size % 4 + 1]
            made = row(partition, first.base_offset, old[-1].next_offset, key)
            shelf.exchange(session, partition, [(one.base_offset, one.key) for one in old], made)
            for one in others:
                del model.rows[partition, one.base_offset]
            put(made)
        if kind != "merge":
            model.drop_deleted()
        assert shelf.stored(ONE, TWO) == model.stored()
        named = {one.key for one in model.rows.values()}
        assert set(shelf.due()) == model.keys - named
    shelf.engine.close()


def new_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segments") / "catalog.db"
