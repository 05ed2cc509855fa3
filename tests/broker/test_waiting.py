"""The purgatory: a parked fetch is finished once, by what comes first of enough, late and gone."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.fetch.purgatory import Purgatory
from odradek.storage.log import Log

# A purgatory only tells logs apart.
LOGS = [cast("Log", object()) for _ in range(3)]
NEVER_MS = 3_600_000


class Finished:
    """Counts the calls of a waiter's `finish`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def turn() -> None:
    """Let the loop take a step, in which it wakes who is to be woken."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_appends_to_all_its_logs_count_until_they_are_enough() -> None:
    purgatory, finished = Purgatory(asyncio.get_running_loop()), Finished()
    purgatory.park(LOGS[:2], 10, NEVER_MS, finished)
    for log, size_bytes in ((LOGS[0], 6), (LOGS[2], 100), (LOGS[1], 3)):
        purgatory.appended(log, size_bytes)
        await turn()
    assert (finished.count, len(purgatory)) == (0, 1)
    purgatory.appended(LOGS[0], 1)
    purgatory.appended(LOGS[0], 1)
    assert finished.count == 0, "an append waits for nobody"
    await turn()
    assert (finished.count, len(purgatory)) == (1, 0)


class StableUpTo:
    """A log as a purgatory sees it: where it ends, and up to where it is stable."""

    def __init__(self, stable: int, end: int) -> None:
        self.last_stable_offset, self.high_watermark = stable, end


async def test_unstable_bytes_do_not_count_for_read_committed() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    facts = StableUpTo(5, 7)
    log = cast("Log", facts)
    missing = [4, 0, 0]
    committed, uncommitted = Finished(), Finished()
    purgatory.park([log], 10, NEVER_MS, committed, lambda: missing.pop(0), is_committed=True)
    purgatory.park([log], 10, NEVER_MS, uncommitted)
    purgatory.appended(log, 10)
    await turn()
    assert (committed.count, uncommitted.count) == (0, 1)
    facts.last_stable_offset = 7
    purgatory.stable(log)
    await turn()  # four bytes are missing from now on
    purgatory.appended(log, 3)
    await turn()
    assert committed.count == 0
    purgatory.appended(log, 1)
    await turn()
    assert committed.count == 1
    purgatory.park([log], 10, NEVER_MS, committed, lambda: missing.pop(0), is_committed=True)
    purgatory.stable(log)
    await turn()
    assert committed.count == 2
    assert len(purgatory) == 0


async def test_bytes_are_counted_again_only_after_some_that_were_not_stable() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    facts = StableUpTo(5, 5)
    log = cast("Log", facts)
    counts: list[int] = []

    def recount() -> int:
        counts.append(1)
        return 0

    for has_unstable in (False, True):
        finished = Finished()
        purgatory.park([log], 10, NEVER_MS, finished, recount, is_committed=True, is_exact=True)
        if has_unstable:
            facts.high_watermark = 7
            purgatory.appended(log, 10)
            facts.last_stable_offset = 7
            purgatory.stable(log)
        else:
            purgatory.appended(log, 10)
        await turn()
        assert (finished.count, len(counts)) == (1, int(has_unstable))


async def test_time_finishes_it_with_what_there_is() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    woken = asyncio.Event()
    purgatory.park(LOGS, 10, 5, woken.set)
    await asyncio.wait_for(woken.wait(), 60)
    assert len(purgatory) == 0


async def test_a_log_that_is_deleted_wakes_its_readers_and_no_others() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    reader, other = Finished(), Finished()
    purgatory.park(LOGS[:2], 10, NEVER_MS, reader)
    purgatory.park(LOGS[2:], 10, NEVER_MS, other)
    purgatory.deleted(LOGS[1])
    await turn()
    assert (reader.count, other.count, len(purgatory)) == (1, 0, 1)


async def test_a_partition_that_is_named_twice_counts_once() -> None:
    purgatory, finished = Purgatory(asyncio.get_running_loop()), Finished()
    purgatory.park([LOGS[0], LOGS[0]], 10, NEVER_MS, finished)
    purgatory.appended(LOGS[0], 9)
    await turn()
    assert finished.count == 0
    purgatory.appended(LOGS[0], 1)
    await turn()
    assert (finished.count, len(purgatory)) == (1, 0)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("park"), st.sets(st.integers(0, 2), min_size=1), st.integers(1, 5)),
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.integers(0, 2)),
        st.tuples(st.just("turn")),
        st.tuples(st.just("wake all")),
    ),
    max_size=30,
)


@given(steps=steps)
def test_each_is_finished_once_unless_it_was_cancelled_before(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        parked = []
        for kind, *values in steps:
            match kind:
                case "park":
                    finished = Finished()
                    logs = [LOGS[at] for at in values[0]]
                    parked.append((purgatory.park(logs, values[1], NEVER_MS, finished), finished))
                case "append":
                    purgatory.appended(LOGS[values[0]], values[1])
                case "cancel":
                    for waiter, _ in parked[values[0] : values[0] + 1]:
                        purgatory.cancel(waiter)
                case "delete":
                    purgatory.deleted(LOGS[values[0]])
                case "turn":
                    await turn()
                case "wake all":
                    purgatory.wake_all()
        before = [finished.count for _, finished in parked]
        cancelled = [waiter.deadline is None for waiter, _ in parked]
        purgatory.wake_all()
        await turn()
        assert len(purgatory) == 0
        for (_, finished), count, is_cancelled in zip(parked, before, cancelled, strict=True):
            assert finished.count == (count if is_cancelled else 1)
            assert finished.count <= 1

    asyncio.run(main())
