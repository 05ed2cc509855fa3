"""A crash at every single file operation: what was flushed is there, and the log goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings

from odradek.storage import checkpoints
from odradek.storage.exchange import repair
from odradek.storage.segment import CLEANED, Segment
from tests.cleaner.once import clean_once
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.ledger import check_indexes
from tests.storage.partition import (
    COMPACT,
    SMALL,
    TOPIC,
    TOPIC_ID,
    Partition,
    StoredBatch,
    clean,
    make_batch,
    read_all,
)
from tests.storage.transactional import Entry, committed_offsets, end, expect, indexed, write

pytestmark = pytest.mark.slow

DATA = Path("/data")
TINY = replace(SMALL, internal_segment_bytes=700)

Check = Callable[[CrashFileSystem], None]


@dataclass
class Expected:
    """What a log may hold after a crash; a test moves it on with the log."""

    partition: Partition
    flushed: list[StoredBatch] = field(default_factory=list)
    others: list[StoredBatch] = field(default_factory=list)
    flushed_end: int = 0

    def append(self, records: int = 2, producer: tuple[int, int, int] | None = None) -> None:
        """Append a batch; already while it is under way it may be found."""
        log, clock = self.partition.log, self.partition.clock
        offset = log.log_end_offset
        values = [(b"key%d" % (offset % 5), b"value" * (offset % 7))] * records
        batch = make_batch(
            values,
            clock.now_ms(),
            producer=producer,
            base_offset=offset,
            leader_epoch=log.leader_epoch,
        )
        self.others.append(StoredBatch(offset, offset + records - 1, batch))
        self.partition.append(values, producer=producer)

    def flush(self) -> None:
        """Flush the log; what is in it must be found from then on."""
        self.partition.flush()
        self.flushed += self.others
        self.others = []
        self.flushed_end = self.partition.log.log_end_offset

    def check(self, fs: CrashFileSystem) -> None:
        """Check what a crash left behind, and that the log goes on from there."""
        survived = self.partition.next_life(fs)
        found = survived.batches()
        known = {batch.base_offset: batch for batch in (*self.flushed, *self.others)}
        assert [known.get(batch.base_offset) for batch in found] == found
        offsets = {batch.base_offset for batch in found}
        assert offsets >= {batch.base_offset for batch in self.flushed}, "flushed and lost"
        assert survived.log.log_end_offset >= self.flushed_end, "offsets went back"
        goes_on(survived)


def goes_on(partition: Partition) -> None:
    """Check that a log takes another batch, and keeps all through a clean restart."""
    before = partition.batches()
    end = partition.log.log_end_offset
    partition.append([(b"after", b"crash")])
    found = partition.reopen().batches()
    assert found[:-1] == before
    assert (found[-1].base_offset, found[-1].records[0].value) == (end, b"crash")


@contextmanager
def crash_everywhere(
    fs: CrashFileSystem, check: Check, seeds: int | None = None
) -> Iterator[list[str]]:
    """Check what a crash leaves before each operation that follows; yield what they were."""
    operations: list[str] = []
    if seeds is None:  # three by default, sixty with the thorough profile
        seeds = settings().max_examples * 3 // 100

    def before(kind: str, path: Path) -> None:
        for seed in range(seeds):
            check(fs.clone_after_crash(len(operations) * seeds + seed))
        operations.append(f"{kind} {path.name}")

    fs.before = before
    try:
        yield operations
    finally:
        fs.before = None
    assert operations, "there was nothing to crash at"
    for seed in range(seeds):
        check(fs.clone_after_crash(seed))


def filled(batches: int = 30, flush_each: int = 8) -> Expected:
    """A log of some segments, flushed now and then, its last batches not."""
    expected = Expected(Partition(CrashFileSystem(), config=TINY))
    for at in range(batches):
        expected.append()
        expected.partition.clock.advance(50)
        if at % flush_each == 0:
            expected.flush()
    return expected


def fs_of(expected: Expected) -> CrashFileSystem:
    """The file system of a log."""
    fs = expected.partition.fs
    assert isinstance(fs, CrashFileSystem)
    return fs


def test_append_and_roll_and_flush() -> None:
    expected = filled(6)
    with crash_everywhere(fs_of(expected), expected.check) as operations:
        for at in range(24):
            expected.append(1 + at % 3, producer=(5, 0, expected.partition.log.log_end_offset))
            if at % 7 == 6:
                expected.flush()
    assert len(expected.partition.log.segments) > 1
    assert any("snapshot" in operation for operation in operations)


def test_transactions() -> None:
    """Markers and the indexes of the aborted: readers see what is committed, and no more."""
    expected = filled(4)
    partition = expected.partition
    entries = [Entry(b.base_offset, b.last_offset, -1) for b in partition.batches()]
    sequences = {3: 0, 4: 0}

    def check(fs: CrashFileSystem) -> None:
        log = partition.next_life(fs).log
        assert log.log_end_offset >= expected.flushed_end, "offsets went back"
        found = {batch.base_offset for batch in read_all(log)}
        there = [one for one in entries if one.base_offset in found]
        meant = expect(there, log.log_end_offset)
        assert log.last_stable_offset == meant.last_stable_offset
        assert list(committed_offsets(log)) == meant.committed
        assert indexed(log) == meant.aborted

    with crash_everywhere(fs_of(expected), check) as operations:
        for at in range(24):
            producer_id = 3 + at % 2
            # Already while it is under way it may be found.
            offset = partition.log.log_end_offset
            if at % 5 < 3:
                entries.append(Entry(offset, offset + 1, producer_id))
                write(partition, producer_id, 0, sequences[producer_id], b"v" * at, b"w")
                sequences[producer_id] += 2
            else:
                entries.append(Entry(offset, offset, producer_id, at % 3 == 0))
                end(partition, producer_id, 0, commit=at % 3 == 0)
            if at % 7 == 6:
                expected.flush()
    assert len(partition.log.segments) > 2
    assert sum("txnindex" in operation for operation in operations) > 3


def test_checkpoints() -> None:
    expected = filled()
    directory = expected.partition.directory
    with crash_everywhere(fs_of(expected), expected.check) as operations:
        directory.write_checkpoints()
        expected.append()
        expected.flush()
        directory.write_checkpoints()
        directory.cleaner_offsets[TOPIC, 0] = 7
        directory.store(directory.take_cleaner_offsets())
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS):
        assert f"rename {name}.tmp" in operations


def test_a_checkpoint_is_the_old_or_the_new_one_whole() -> None:
    fs = CrashFileSystem()
    fs.make_directory(DATA)
    fs.sync_directory(Path("/"))
    path = DATA / "checkpoint"
    old: dict[tuple[str, int], int] = {("a", 0): 1}
    new = {("a", 0): 2, ("b", 1): 3}
    checkpoints.write_offsets(fs, path, old)
    with crash_everywhere(
        fs, lambda crashed: _in(checkpoints.read_offsets(crashed, path), (old, new))
    ):
        checkpoints.write_offsets(fs, path, new)
    assert checkpoints.read_offsets(fs.clone_after_crash(1), path) == new


def _in(found: object, wanted: tuple[object, ...]) -> None:
    assert found in wanted


def test_a_clean_stop() -> None:
    expected = filled()
    with crash_everywhere(fs_of(expected), expected.check):
        expected.partition.directory.close()
    expected.flush()
    expected.check(fs_of(expected).clone_after_crash(3))


def test_a_start_after_a_clean_stop() -> None:
    expected = filled()
    expected.partition.directory.close()
    expected.flush()
    with crash_everywhere(fs_of(expected), expected.check):
        expected.partition = expected.partition.next_life()


@pytest.mark.parametrize("seed", range(4))
def test_a_recovery(seed: int) -> None:
    expected = filled()
    for _ in range(30):
        expected.append(producer=(5, 0, expected.partition.log.log_end_offset))
    fs = fs_of(expected).clone_after_crash(seed)
    with crash_everywhere(fs, expected.check):
        expected.partition = expected.partition.next_life(fs)


def test_trimming() -> None:
    expected = filled(40)
    expected.flush()
    log, clock = expected.partition.log, expected.partition.clock
    # From here on what is before the start may be gone, or still there.
    end = log.segments[4].base_offset
    expected.others = [batch for batch in expected.flushed if batch.base_offset < end]
    expected.flushed = [batch for batch in expected.flushed if batch.base_offset >= end]
    with crash_everywhere(fs_of(expected), expected.check):
        log.advance_start_offset(log.segments[1].base_offset + 1)
        expected.partition.directory.write_checkpoints()
        log.delete_segments(1, clock.now_ms())
        log.delete_segments(3, clock.now_ms())
        directory = expected.partition.directory
        directory.remove(directory.take_due_removals(clock.advance(100_000)))
    assert log.log_start_offset == end


def test_deleting_all_segments() -> None:
    expected = filled(20)
    expected.flush()
    expected.others, expected.flushed = expected.flushed, []
    log = expected.partition.log
    end = log.log_end_offset
    with crash_everywhere(fs_of(expected), expected.check):
        log.delete_segments(len(log.segments), expected.partition.clock.now_ms())
        expected.partition.flush()
        assert (log.log_start_offset, log.log_end_offset) == (end, end)


def test_an_exchange_of_segments() -> None:
    expected = filled(40)
    expected.flush()
    partition = expected.partition
    before = partition.batches()
    start, end = (partition.log.segments[at].base_offset for at in (1, 4))
    dropped = {b.base_offset for b in before[::3] if start <= b.base_offset < end}
    after = [batch for batch in before if batch.base_offset not in dropped]

    def check(fs: CrashFileSystem) -> None:
        survived = partition.next_life(fs)
        assert survived.batches() in (before, after)
        names = fs.list(DATA / f"{TOPIC}-0")
        assert not [name for name in names if not name[-1].isalpha() or "." in name[21:]]
        goes_on(survived)

    with crash_everywhere(fs_of(expected), check) as operations:
        clean(partition, 1, 3, dropped)
        assert partition.batches() == after
        directory = partition.directory
        directory.remove(directory.take_due_removals(partition.clock.advance(100_000)))
    assert sum(operation.startswith("rename") for operation in operations) == 3 * 3 + 2 * 3
    assert partition.next_life(fs_of(expected).clone_after_crash(9)).batches() == after


def test_an_exchange_of_one_segment_for_two() -> None:
    """As when offsets no longer fit into one: while one is .cleaned, the other is undone."""
    expected = filled(40)
    expected.flush()
    partition, log = expected.partition, expected.partition.log
    before = partition.batches()
    old = log.segments[2]
    within = [b for b in before if old.base_offset <= b.base_offset < log.segments[3].base_offset]
    middle = len(within) // 2
    new = []
    for part in (within[:middle], within[middle:]):
        segment = Segment(fs_of(expected), log.directory, part[0].base_offset, suffix=CLEANED)
        for batch in part:
            segment.append((batch.data,), len(batch.data), batch.last_offset, 1, 100)
        segment.seal()
        segment.flush()
        new.append(segment)

    def check(fs: CrashFileSystem) -> None:
        survived = partition.next_life(fs)
        assert survived.batches() == before
        goes_on(survived)

    left: list[CrashFileSystem] = []

    def check_and_keep(fs: CrashFileSystem) -> None:
        left.append(fs.clone_after_kill())
        check(fs)

    with crash_everywhere(fs_of(expected), check_and_keep):
        log.replace_segments([old], new, partition.clock.now_ms())
    assert log.segments[2:4] == tuple(new)
    # And a crash while it is finished or undone.
    for fs in left[::5]:
        with crash_everywhere(fs, check, seeds=1):
            repair(fs, log.directory)


def test_an_exchange_of_a_segment_for_an_empty_one() -> None:
    """It holds no offset that names the originals, and their indexes go all the same."""
    expected = filled(40)
    expected.flush()
    partition = expected.partition
    partition.directory.write_checkpoints()  # so that no recovery looks at it
    before = partition.batches()
    start, end = (partition.log.segments[at].base_offset for at in (1, 2))
    dropped = {b.base_offset for b in before if start <= b.base_offset < end}
    after = [batch for batch in before if batch.base_offset not in dropped]

    def check(fs: CrashFileSystem) -> None:
        survived = partition.next_life(fs)
        assert survived.batches() in (before, after)
        check_indexes(survived.log)

    with crash_everywhere(fs_of(expected), check, seeds=25):
        clean(partition, 1, 1, dropped)


def test_a_cleaning_of_what_is_not_flushed() -> None:
    """What a key had stays until the record that makes it obsolete is on the disk."""
    partition = Partition(CrashFileSystem(), config=replace(TINY, cleanup_policy=COMPACT))
    for at in range(12):
        partition.append([(b"key%d" % at, b"old" * 30)])
    partition.flush()
    for at in range(36):
        partition.append([(b"key%d" % (at % 12), b"new" * 30)])
    partition.log.roll(partition.clock.advance(10))
    fs = partition.fs
    assert isinstance(fs, CrashFileSystem)

    def check(crashed: CrashFileSystem) -> None:
        values = {r.key: r.value for r in partition.next_life(crashed).records()}
        assert values.keys() == {b"key%d" % at for at in range(12)}

    with crash_everywhere(fs, check):
        now_ms = partition.clock.advance(10)
        assert clean_once(partition.log, partition.directory, now_ms, fs=fs) is not None
    assert len(partition.records()) == 12


def test_a_cleaning_of_a_batch_whose_producer_went_on() -> None:
    """A producer is not forgotten for a batch of its own that is not on the disk."""
    partition = Partition(CrashFileSystem(), config=replace(TINY, cleanup_policy=COMPACT))
    partition.append([(b"key", b"first")], producer=(7, 0, 0))
    partition.append([(b"key", b"second")])
    partition.log.roll(partition.clock.advance(10))
    partition.append([(b"other", b"value" * 100)])
    partition.append([(b"another", b"value" * 100)])
    partition.flush()
    partition.append([(b"last", b"value")], producer=(7, 0, 1))
    fs = partition.fs
    assert isinstance(fs, CrashFileSystem)

    def check(crashed: CrashFileSystem) -> None:
        for path in crashed.files(DATA):  # which a later cleaning may remove
            if path.endswith(".snapshot"):
                crashed.remove(DATA / path)
        producer = partition.next_life(crashed).log.producers.get(7)
        assert producer is not None
        assert producer.last_sequence in (0, 1)

    with crash_everywhere(fs, check, seeds=10):
        now_ms = partition.clock.advance(10)
        assert clean_once(partition.log, partition.directory, now_ms, fs=fs) is not None
    assert partition.batches()[0].base_offset > 0, "the first batch was not cleaned away"


def test_a_checkpoint_right_after_a_roll() -> None:
    """The recovery point is where a segment ends whose indexes are not on the disk yet."""
    expected = filled(15)
    expected.flush()
    partition = expected.partition
    partition.log.roll(partition.clock.now_ms())
    partition.directory.write_checkpoints()
    for seed in range(50):
        check_indexes(partition.next_life(fs_of(expected).clone_after_crash(seed)).log)


def test_the_repair_of_an_exchange() -> None:
    """A crash while an exchange is finished or undone, which began before a crash."""
    expected = filled(40)
    expected.flush()
    partition = expected.partition
    before = partition.batches()
    dropped = {batch.base_offset for batch in before[::3]}
    left: list[CrashFileSystem] = []
    with crash_everywhere(fs_of(expected), left.append):
        clean(partition, 1, 3, dropped)
    after = partition.batches()

    def check(fs: CrashFileSystem) -> None:
        assert partition.next_life(fs).batches() in (before, after)

    for fs in left[5::45]:
        with crash_everywhere(fs, check, seeds=1):
            partition.next_life(fs)


def test_creating_a_log() -> None:
    expected = filled(10)
    expected.flush()
    partition = expected.partition
    other_id = bytes(16)

    def check(fs: CrashFileSystem) -> None:
        expected.check(fs.clone_after_kill())
        survived = partition.next_life(fs)
        found = survived.directory.partitions()
        # Without an id is one whose creation was cut short.
        assert found.get((TOPIC, 1), other_id) in (other_id, None)
        log = survived.directory.create_log(TOPIC, 1, other_id, SMALL, now_ms=0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert survived.directory.partitions()[TOPIC, 1] == other_id

    with crash_everywhere(fs_of(expected), check):
        partition.directory.create_log(TOPIC, 1, other_id, SMALL, now_ms=0)
    survived = partition.next_life(fs_of(expected).clone_after_crash(5))
    found = survived.directory.partitions()
    assert found.pop((TOPIC, 0)) == TOPIC_ID
    assert found in ({(TOPIC, 1): other_id}, {(TOPIC, 1): None})  # written when it is loaded


def test_deleting_a_log() -> None:
    expected = filled(10)
    expected.flush()
    partition = expected.partition
    doomed = partition.directory.create_log(TOPIC, 1, bytes(16), SMALL, now_ms=0)
    doomed.append(make_batch([(b"k", b"v")], 0), now_ms=0)
    unflushed = doomed.unflushed()
    unflushed.sync()
    doomed.flushed(unflushed.end_offset)

    def check(fs: CrashFileSystem) -> None:
        expected.check(fs.clone_after_kill())
        survived = partition.next_life(fs)
        if (TOPIC, 1) in survived.directory.partitions():
            log = survived.directory.create_log(TOPIC, 1, bytes(16), SMALL, now_ms=0)
            assert len(read_all(log)) == 1
        assert not [name for name in fs.list(DATA) if name.endswith("-delete")]

    with crash_everywhere(fs_of(expected), check):
        directory = partition.directory
        directory.delete_log(doomed, 0)
        directory.remove(directory.take_due_removals(1_000_000))
    survived = partition.next_life(fs_of(expected).clone_after_crash(5))
    assert (TOPIC, 1) not in survived.directory.partitions()


def test_the_first_start() -> None:
    """Nothing of a new log directory is there yet, or it is usable."""
    fs = CrashFileSystem()

    def check(crashed: CrashFileSystem) -> None:
        goes_on(Partition(crashed))

    with crash_everywhere(fs, check):
        partition = Partition(fs)
    partition.append([(b"k", b"v")])
    partition.flush()
    assert len(partition.next_life(fs.clone_after_crash(2)).batches()) == 1
