"""The uncommitted end of a shared log: no reader sees it, nor transactions that end in it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import iterate_batches
from odradek.storage.files import Buffer
from odradek.storage.segment import Segment
from odradek.storage.uncommitted import PendingExchange, Uncommitted
from tests.storage.partition import Partition
from tests.storage.test_transactions import new_partition
from tests.storage.transactional import (
    Entry,
    committed_offsets,
    end,
    expect,
    indexed,
    write,
)


def no_exchange(old: Sequence[Segment], new: Sequence[Segment]) -> PendingExchange:
    raise AssertionError("nothing is cleaned here")


class SharedPartition:
    """A shared log, with the batches that its WAL has and the offset that it has committed."""

    def __init__(self) -> None:
        self.partition: Partition = new_partition()
        self.log = self.partition.log
        self.log.uncommitted = Uncommitted(self._add, no_exchange)
        self.log.on_stable = lambda log: self.stable.append(log.last_stable_offset)
        self.added: list[tuple[bytes, int, int]] = []
        self.stable: list[int] = []
        self.entries: list[Entry] = []
        self._sequences: dict[int, int] = {}

    def _add(self, batch: Buffer, base_offset: int, next_offset: int) -> None:
        self.added.append((bytes(batch), base_offset, next_offset))

    def write(self, producer_id: int) -> None:
        if producer_id < 0:
            done = self.partition.append([(b"k", b"v")])
            self.entries.append(Entry(done.base_offset, done.last_offset, -1))
            return
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 2
        self.entries.append(write(self.partition, producer_id, 0, sequence, b"a", b"b"))

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.entries.append(end(self.partition, producer_id, 0, commit=commit))

    def commit(self, count: int) -> None:
        """Commit some of the batches that wait."""
        waiting = [one for one in self.added if one[1] >= self.log.high_watermark]
        if count and waiting:
            self.log.committed(waiting[:count][-1][2])

    def check(self) -> None:
        """Compare the readers' view with that of a log that ends where the commits do."""
        log, end_offset = self.log, self.log.high_watermark
        expected = expect([e for e in self.entries if e.last_offset < end_offset], end_offset)
        assert log.last_stable_offset == expected.last_stable_offset
        assert list(committed_offsets(log)) == expected.committed
        for is_committed in (False, True):
            read, offset = [], 0
            while found := log.read(
                offset, 1 << 20, at_least_one=True, is_committed=is_committed
            ):
                read += [header for _, header in iterate_batches(found.read())]
                offset = read[-1].next_offset
            bound = expected.last_stable_offset if is_committed else end_offset
            assert offset == bound
        assert [one for one in indexed(log) if one.last_offset < end_offset] == expected.aborted


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([-1, 3, 4, 5])),
        st.tuples(st.just("end"), st.sampled_from([3, 4, 5]), st.booleans()),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("roll")),
    ),
    max_size=30,
)


@given(steps)
def test_readers_see_a_shared_log_as_one_that_ends_where_the_commits_do(
    steps: list[tuple[object, ...]],
) -> None:
    shared = SharedPartition()
    for kind, *values in steps:
        if kind == "write":
            shared.write(*values)  # type: ignore[arg-type]
        elif kind == "end":
            shared.end(values[0], commit=values[1])  # type: ignore[arg-type]
        elif kind == "commit":
            shared.commit(*values)  # type: ignore[arg-type]
        else:
            shared.log.roll(0)
        shared.check()


def test_the_wal_gets_each_batch_as_the_log_has_it() -> None:
    shared = SharedPartition()
    shared.write(-1)
    shared.write(3)
    shared.end(3, commit=True)
    stored = [bytes(data) for _, data in shared.log.batches(0)]
    assert [batch for batch, _, _ in shared.added] == stored
    assert [one[1:] for one in shared.added] == [(0, 1), (1, 3), (3, 4)]


def test_a_repeated_batch_is_not_added_again() -> None:
    shared = SharedPartition()
    write(shared.partition, 3, 0, 0, b"a")
    write(shared.partition, 3, 0, 0, b"a")
    assert len(shared.added) == 1


def test_readers_of_stable_records_wake_when_the_marker_is_committed() -> None:
    shared = SharedPartition()
    shared.write(3)
    shared.end(3, commit=True)
    shared.commit(1)
    assert (shared.log.last_stable_offset, shared.stable) == (0, [])
    shared.commit(1)
    assert shared.stable == [3]
