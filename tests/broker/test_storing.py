"""When a broker stores the logs of its shared partitions: by the bytes that only the WAL has."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.shared.tails import PART_BYTES, StoringLimits, Tail, choose_due
from odradek.storage.log import Log
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.filled_bucket import sharing
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere, member
from tests.broker.test_shared_segments import keyed
from tests.broker.test_shared_topics import SHARED, leader_of, produce

_NO_LOG = cast(Log, None)  # choose_due() does not look at it
_NOW_S, _ENTRY = 1e6, 10**6


def tails_of(sizes: list[int]) -> dict[int, Tail]:
    """Return logs with so many bytes in the WAL alone, none of them for long."""
    tails = {}
    for number, size_bytes in enumerate(sizes):
        tail = Tail((b"", number), _NO_LOG, 0, 0)
        tail.size_bytes, tail.since_s, tail.since_entry = size_bytes, _NOW_S, _ENTRY
        tails[number] = tail
    return tails


sizes = st.lists(st.integers(1, 2 * PART_BYTES), max_size=60)
limits = st.builds(StoringLimits, st.integers(1, 20 * PART_BYTES))


@given(sizes, limits, st.integers(0, 5))
def test_rounds_keep_the_bound_and_store_small_parts_only_at_it(
    sizes: list[int], limits: StoringLimits, others: int
) -> None:
    left = tails_of(sizes)
    while True:
        total_bytes = sum(one.size_bytes for one in left.values())
        due = choose_due(left.values(), total_bytes, limits, others, _NOW_S, _ENTRY)
        if not due:
            break
        assert total_bytes >= limits.wal_bytes
        if total_bytes < limits.wal_bytes_max(others):
            assert min(one.size_bytes for one in due) >= PART_BYTES
        else:
            assert due[0] is next(iter(left.values())), "the oldest is the first"
        assert sum(one.size_bytes for one in due[:-1]) < limits.round_bytes
        for one in due:
            del left[one.key[1]]
    assert total_bytes < limits.wal_bytes_max(others)
    if total_bytes >= limits.wal_bytes:
        assert max(one.size_bytes for one in left.values()) < PART_BYTES


@given(sizes, limits, st.integers(0, 5), st.data())
def test_old_logs_are_due_at_any_size(
    sizes: list[int], limits: StoringLimits, others: int, data: st.DataObject
) -> None:
    tails = tails_of(sizes)
    # The oldest ones are the first.
    old = list(tails.values())[: data.draw(st.integers(0, len(sizes)))]
    for tail in old:
        if data.draw(st.booleans()):
            tail.since_s -= limits.wal_age_s
        else:
            tail.since_entry -= limits.wal_entries
    due = choose_due(tails.values(), sum(sizes), limits, others, _NOW_S, _ENTRY)
    assert due[: len(old)] == old


@on_uvloop
async def test_a_broker_stores_less_often_while_others_would_share_a_takeover(
    tmp_path: Path, catalog_url: str
) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    settings = {
        **SLOW,
        **SHARED,
        "odradek.object.store.url": f"file://{bucket}",
        "odradek.wal.checkpoint.bytes": "10000",
    }
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(member(tmp_path, catalog_url, node_id, settings))
            for node_id in (1, 2)
        ]
        async with member(tmp_path, catalog_url, 3, settings) as three:
            await until(lambda: all(len(each.brokers) == 3 for each in (one, two, three)))
            await create(one, "t", 3)
            await known_everywhere([one, two, three], "t")
            number = next(at for at in range(3) if leader_of([one, two, three], at) is one)
            uploads = sharing(one).uploads
            assert uploads.unstored_bytes_max == 20_000
            assert not (await produce(one, keyed(b"k", bytes(15_000)), number)).error_code
            async with uploads._turn:
                await uploads._look()
            assert uploads.unstored_bytes > 15_000
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        assert uploads.unstored_bytes_max == 10_000
        await until(lambda: not uploads.unstored_bytes)
