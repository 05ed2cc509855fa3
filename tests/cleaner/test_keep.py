"""The keep rule: its truth table, and the kernel that carries it out for whole chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.passes.hashing import HashKey
from odradek.cleaner.passes.indexing import Ordinals
from odradek.cleaner.passes.mapping import SPILL_COLUMNS
from odradek.cleaner.passes.offset_map import OffsetMap
from odradek.cleaner.rules.keep import (
    BatchFacts,
    BatchVerdict,
    Retention,
    is_last_of_producer,
    judge_batch,
    keep_record,
    must_stamp,
)
from odradek.cleaner.rules.verdicts import DROPPED, KEEP, KEPT_TOMBSTONE
from odradek.protocol import batch_scan
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.kernel import as_bytes

NOW = 1000
PAST, NOW_ITSELF, LATER = 999, 1000, 1001


@pytest.mark.parametrize(
    ("offset", "has_key", "has_value", "mapped", "horizon", "kept"),
    [
        # The latest offset that the map knows is 10.
        (11, True, True, None, None, True),  # past the map: kept, whatever it is
        (11, False, True, None, None, True),
        (11, True, False, None, PAST, True),
        (10, False, True, None, None, False),  # no key: nothing that could be latest
        (10, False, False, None, None, False),
        (5, True, True, None, None, True),  # a clean record whose key is not dirty
        (5, True, True, 5, None, True),  # the latest of its key
        (5, True, True, 4, None, True),  # dirty starts in the middle of a batch
        (5, True, True, 6, None, False),  # obsolete
        (5, True, False, 6, None, False),
        (5, True, False, 5, None, True),  # a tombstone that is the latest, unstamped
        (5, True, False, None, None, True),
        (5, True, False, 5, LATER, True),  # stamped, its time has not come
        (5, True, False, 5, NOW_ITSELF, False),  # it has come
        (5, True, False, None, PAST, False),
        (5, True, False, 6, LATER, False),  # a later record outweighs the horizon
        (5, True, True, 5, PAST, True),  # values do not expire
    ],
)
def test_a_record_is_kept(
    offset: int,
    has_key: bool,
    has_value: bool,
    mapped: int | None,
    horizon: int | None,
    kept: bool,
) -> None:
    assert kept == keep_record(
        offset=offset,
        has_key=has_key,
        has_value=has_value,
        mapped_offset=mapped,
        latest_offset=10,
        delete_horizon_ms=horizon,
        now_ms=NOW,
    )


@pytest.mark.parametrize(
    ("control", "can_discard", "horizon", "last_of_producer", "ends_range", "verdict"),
    [
        # control, can discard, horizon, producer's last, ends range -> retention, discards, mark
        (False, False, None, False, False, (Retention.DELETE_EMPTY, False, False)),
        (False, False, None, True, False, (Retention.RETAIN_EMPTY, False, False)),
        (False, False, None, False, True, (Retention.RETAIN_EMPTY, False, False)),
        (False, True, None, False, False, (Retention.DELETE, True, False)),  # aborted
        (False, True, LATER, False, False, (Retention.DELETE, True, False)),  # whatever horizon
        (False, True, None, True, False, (Retention.RETAIN_EMPTY, True, False)),
        (False, True, None, False, True, (Retention.RETAIN_EMPTY, True, False)),
        (True, False, None, False, False, (Retention.DELETE_EMPTY, False, False)),
        (True, False, PAST, False, False, (Retention.DELETE_EMPTY, False, False)),  # still needed
        (True, True, None, False, False, (Retention.DELETE_EMPTY, False, True)),  # to be stamped
        (True, True, LATER, False, False, (Retention.DELETE_EMPTY, False, True)),
        (True, True, NOW_ITSELF, False, False, (Retention.DELETE, True, True)),
        (True, True, PAST, True, False, (Retention.RETAIN_EMPTY, True, True)),
        (True, True, PAST, False, True, (Retention.RETAIN_EMPTY, True, True)),
    ],
)
def test_a_batch_is_judged(
    control: bool,
    can_discard: bool,
    horizon: int | None,
    last_of_producer: bool,
    ends_range: bool,
    verdict: tuple[Retention, bool, bool],
) -> None:
    facts = BatchFacts(control, can_discard, horizon, last_of_producer, ends_range)
    assert judge_batch(facts, NOW) == BatchVerdict(*verdict)


@pytest.mark.parametrize(
    ("last_offset", "is_control", "epoch", "producer_last_offset", "expected"),
    [
        (7, False, 3, 7, True),
        (6, False, 3, 7, False),
        (7, True, 3, None, True),  # only markers are left: the one of its epoch is kept
        (7, True, 2, None, False),
        (7, False, 3, None, False),
    ],
)
def test_the_last_batch_of_an_active_producer_is_known(
    last_offset: int,
    is_control: bool,
    epoch: int,
    producer_last_offset: int | None,
    expected: bool,
) -> None:
    assert expected == is_last_of_producer(
        last_offset=last_offset,
        is_control=is_control,
        epoch=epoch,
        producer_last_offset=producer_last_offset,
        producer_epoch=3,
    )


@pytest.mark.parametrize("keeps_tombstones", [False, True])
@pytest.mark.parametrize("marks_empty", [False, True])
@pytest.mark.parametrize("horizon", [None, PAST, LATER])
def test_a_batch_is_stamped_once(
    keeps_tombstones: bool, marks_empty: bool, horizon: int | None
) -> None:
    verdict = BatchVerdict(Retention.DELETE_EMPTY, False, marks_empty)
    stamped = must_stamp(
        keeps_tombstones=keeps_tombstones, verdict=verdict, delete_horizon_ms=horizon
    )
    assert stamped == (horizon is None and (keeps_tombstones or marks_empty))


KEYS = st.sampled_from([None, b"", b"a", b"b", b"a long key, of some words", b"\x00", b"\x00\x00"])
RECORDS = st.tuples(st.integers(0, 3), KEYS, st.sampled_from([None, b"", b"value"]))
BATCHES = st.tuples(
    st.lists(RECORDS, min_size=1, max_size=5), st.sampled_from([None, PAST, NOW_ITSELF, LATER])
)


@given(
    st.lists(BATCHES, min_size=0, max_size=8),
    st.lists(BATCHES, min_size=1, max_size=8),
    st.lists(BATCHES, min_size=0, max_size=3),
    st.booleans(),
)
def test_the_kernels_decide_as_the_rule_does(
    clean: list[tuple[list[tuple[int, bytes | None, bytes | None]], int | None]],
    dirty: list[tuple[list[tuple[int, bytes | None, bytes | None]], int | None]],
    beyond: list[tuple[list[tuple[int, bytes | None, bytes | None]], int | None]],
    looks_up_first: bool,
) -> None:
    parts: list[bytes] = []
    records: list[tuple[Record, int | None]] = []
    offset = 0
    for rows, horizon in [*clean, *dirty, *beyond]:
        made = []
        for gap, key, value in rows:
            offset += gap
            made.append(Record(offset, 500, key, value))
            offset += 1
        base = made[0].offset
        parts.append(encode_batch(made, base_offset=base, delete_horizon_ms=horizon))
        records += [(record, horizon) for record in made]
    data = as_bytes(b"".join(parts))
    table = np.empty((len(parts), batch_scan.BATCH_COLUMNS), np.int64)
    status, rows_filled, _ = batch_scan.scan_batches(data, 0, len(data), 0, True, table)
    assert (status, rows_filled) == (batch_scan.WHOLE, len(parts))
    start_offset = int(table[len(clean), batch_scan.BASE_OFFSET])
    latest_offset = int(table[len(clean) + len(dirty) - 1, batch_scan.LAST_OFFSET])

    seen = {
        record.key: record.offset
        for record, _ in records
        if record.key is not None and start_offset <= record.offset <= latest_offset
    }
    built = OffsetMap(
        100, bytes_max=1 << 20, load_factor_max=0.9, hash_key=HashKey(123456789, 987654321)
    )
    ordinals = Ordinals(start_offset, 0).number(table, dirty=True)
    verdicts = np.zeros(len(parts), np.uint8)
    indexed = slice(len(clean), len(clean) + len(dirty))
    added = built.add(data, table[indexed], verdicts[indexed], ordinals[indexed])
    assert added.status == batch_scan.WHOLE
    assert len(built) == len(seen)
    if looks_up_first:  # as when keys were spilled: no second look at the map
        numbers = Ordinals(start_offset, len(records)).number(table, dirty=False)
        built.obsolete.make_room(2 * len(records))
        rows = np.empty((len(records), SPILL_COLUMNS), np.uint32)
        looked_up = built.look_up(
            data, table[: len(clean)], verdicts[: len(clean)], numbers[: len(clean)],
            start_offset, rows,
        )  # fmt: skip
        assert looked_up.status == batch_scan.WHOLE
        ordinals[: len(clean)] = numbers[: len(clean)]

    verdicts[indexed.stop :] = KEEP
    positions, fates = np.empty(len(records), np.int64), np.empty(len(records), np.uint8)
    status, _, judged, keyless, expired = built.judge(
        data, table, verdicts, ordinals, NOW, positions, fates
    )
    assert (status, judged) == (batch_scan.WHOLE, len(records))
    expected = [
        keep_record(
            offset=record.offset,
            has_key=record.key is not None,
            has_value=record.value is not None,
            mapped_offset=seen.get(record.key) if record.key is not None else None,
            latest_offset=latest_offset,
            delete_horizon_ms=horizon,
            now_ms=NOW,
        )
        for record, horizon in records
    ]
    assert [fate != DROPPED for fate in fates.tolist()] == expected
    tombstones = [
        kept and record.value is None
        for kept, (record, _) in zip(expected, records, strict=True)
    ]
    assert [fate == KEPT_TOMBSTONE for fate in fates.tolist()] == tombstones
    assert added.keyless == sum(
        r.key is None and start_offset <= r.offset <= latest_offset for r, _ in records
    )
    clean_keyless = sum(r.key is None and r.offset < start_offset for r, _ in records)
    assert keyless == (0 if looks_up_first else clean_keyless)
    assert 0 <= expired <= sum(r.value is None for r, _ in records)
