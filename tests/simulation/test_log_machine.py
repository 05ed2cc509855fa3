"""A log beside a plain list of what was appended, through crashes, cleanings and restarts."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.protocol.batches import HEADER_SIZE
from odradek.protocol.compression import Codec
from odradek.storage.errors import OffsetOutOfRange, OutOfOrderSequence
from tests.simulation.clock import SimulatedClock
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import KeyValue, Partition, StoredBatch, clean, read_all

KEYS = st.sampled_from([b"a", b"b", b"c" * 40, b""])
VALUES = st.one_of(st.none(), st.binary(max_size=12), st.integers(50, 250).map(bytes))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**32)
PRODUCERS = (7, 8)


class LogMachine(RuleBasedStateMachine):
    """What is flushed is there for ever; the rest is there or not, but never changed."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimulatedClock()
        self.fs = CrashFileSystem(self.clock)
        self.partition = Partition(self.fs, clock=self.clock)
        # What a reader must find, in order; and what was deleted, which a crash may bring back.
        self.batches: list[StoredBatch] = []
        self.deleted: list[StoredBatch] = []
        self.cleaned: set[int] = set()
        self.flushed_end = 0
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    # --- writing --------------------------------------------------------------------------

    @rule(records=RECORDS, codec=st.sampled_from(Codec), ages_ms=st.integers(0, 3_000))
    def append(self, records: list[KeyValue], codec: Codec, ages_ms: int) -> None:
        now_ms = self.clock.now_ms()
        timestamps = [now_ms - (at * 977) % (ages_ms + 1) for at in range(len(records))]
        self._append(records, timestamps, codec, None)

    @rule(records=RECORDS, producer_id=st.sampled_from(PRODUCERS))
    def append_in_sequence(self, records: list[KeyValue], producer_id: int) -> None:
        producer = producer_id, 0, self.sequences[producer_id]
        self._append(records, None, Codec.NONE, producer)
        self.sequences[producer_id] += len(records)

    @rule(count=st.integers(2, 30))
    def append_many(self, count: int) -> None:
        for at in range(count):
            self._append([(b"k%d" % (at % 4), bytes(at))], None, Codec.NONE, None)
            self.clock.advance(7)

    def _append(
        self,
        records: list[KeyValue],
        timestamps: list[int] | None,
        codec: Codec,
        producer: tuple[int, int, int] | None,
    ) -> None:
        log = self.log
        end = log.log_end_offset
        done = self.partition.append(records, timestamps, codec=codec, producer=producer)
        assert not done.is_duplicate
        assert (done.base_offset, done.last_offset) == (end, end + len(records) - 1)
        assert log.log_end_offset == done.last_offset + 1
        found = log.read(end, HEADER_SIZE, at_least_one=True)
        assert found is not None
        batch = StoredBatch(done.base_offset, done.last_offset, found.read())
        assert [(r.offset, r.key, r.value) for r in batch.records] == [
            (end + at, key, value) for at, (key, value) in enumerate(records)
        ]
        self.batches.append(batch)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def leave_a_sequence_out(self, producer_id: int) -> None:
        if self.log.producers.get(producer_id) is None:
            return  # a sequence that nothing is known of is taken as it is (KIP-360)
        try:
            self.partition.append(
                [(b"a", b"")], producer=(producer_id, 0, self.sequences[producer_id] + 1)
            )
        except OutOfOrderSequence:
            return
        raise AssertionError("a gap in the sequence was let in")

    @rule()
    def repeat_the_last_batch(self) -> None:
        log = self.log
        for state in log.producers:
            last = state.batches[-1]
            done = self.partition.append(
                [(b"a", b"")] * (last.offset_delta + 1),
                producer=(state.producer_id, state.epoch, last.first_sequence),
            )
            assert done.is_duplicate
            assert (done.base_offset, done.last_offset) == (last.first_offset, last.last_offset)
            assert done.last_offset < log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.now_ms())

    @rule(by_ms=st.integers(1, 11_000))
    def wait(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def flush(self) -> None:
        self.partition.flush()
        self.flushed_end = self.log.log_end_offset

    @rule()
    def checkpoint(self) -> None:
        self.partition.directory.write_checkpoints()

    # --- trimming and cleaning ------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def advance_the_start(self, share: float) -> None:
        log = self.log
        offset = log.log_start_offset + int(
            share * (log.log_end_offset - log.log_start_offset + 0.99)
        )
        log.advance_start_offset(offset)
        self._drop_before(offset)

    @rule(count=st.integers(0, 4))
    def delete_segments(self, count: int) -> None:
        log = self.log
        size = log.size_bytes
        given_back = log.delete_segments(count, self.clock.now_ms())
        assert log.size_bytes == size - given_back
        self._drop_before(log.log_start_offset)

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(data=st.data())
    def clean(self, data: st.DataObject) -> None:
        sealed = len(self.log.segments) - 1
        first = data.draw(st.integers(0, sealed - 1))
        count = data.draw(st.integers(1, sealed - first))
        start = self.log.segments[first].base_offset
        end = self.log.segments[first + count].base_offset
        within = [batch.base_offset for batch in self.batches if start <= batch.base_offset < end]
        dropped = data.draw(st.sets(st.sampled_from(within))) if within else set()
        clean(self.partition, first, count, dropped)
        self.batches = [batch for batch in self.batches if batch.base_offset not in dropped]
        self.cleaned |= dropped

    def _drop_before(self, offset: int) -> None:
        self.deleted += [batch for batch in self.batches if batch.last_offset < offset]
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]

    @rule()
    def _remove_old_files(self) -> None:
        directory = self.partition.directory
        directory.remove(directory.take_due_removals(self.clock.now_ms()))

    # --- lives ----------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        ends = self.log.log_start_offset, self.log.log_end_offset, self.log.leader_epoch
        producers = {state.producer_id: state.last_sequence for state in self.log.producers}
        self.partition = self.partition.reopen()
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == ends
        assert {s.producer_id: s.last_sequence for s in log.producers} == producers
        self.flushed_end = log.log_end_offset

    @rule(seed=SEEDS)
    def lose_the_process(self, seed: int) -> None:
        self._recover(self.fs.clone_after_kill(), self.log.log_end_offset)

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=3))
    def lose_power(self, seeds: list[int]) -> None:
        for seed in seeds[1:]:
            self._check_survivors(self.partition.next_life(self.fs.clone_after_crash(seed)))
        self._recover(self.fs.clone_after_crash(seeds[0]), self.flushed_end)

    def _recover(self, fs: CrashFileSystem, flushed_end: int) -> None:
        epoch = self.log.leader_epoch
        known = {batch.base_offset: batch for batch in (*self.deleted, *self.batches)}
        survived = self.partition.next_life(fs)
        self._check_survivors(survived)
        assert survived.log.log_end_offset >= flushed_end
        assert survived.log.leader_epoch > epoch
        again = survived.next_life(fs.clone_after_crash(1))
        assert _content(again) == _content(survived)
        self.fs, self.partition = fs.clone_after_kill(), survived
        self.partition = survived.next_life(self.fs)
        found = read_all(self.log)
        assert [known[batch.base_offset] for batch in found] == found
        self.batches = found
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.deleted = [b for b in known.values() if b.last_offset < min(start, end)]
        self.flushed_end = self.log.log_end_offset
        for producer_id in PRODUCERS:
            state = self.log.producers.get(producer_id)
            self.sequences[producer_id] = state.last_sequence + 1 if state else 0

    def _check_survivors(self, survived: Partition) -> None:
        log = survived.log
        found = {batch.base_offset: batch for batch in read_all(log)}
        known = {batch.base_offset: batch for batch in (*self.deleted, *self.batches)}
        for base_offset, batch in found.items():
            assert known[base_offset] == batch
        for batch in self.batches:
            if batch.last_offset < self.flushed_end:
                assert found[batch.base_offset] == batch, "flushed and lost"
        for state in log.producers:
            for last in state.batches:
                # Else a producer would get the answer that a lost batch is there.
                assert last.first_offset in found or (
                    last.first_offset in self.cleaned or last.first_offset < log.log_start_offset
                )

    # --- reading --------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), size_max=st.integers(0, 5_000), at_least_one=st.booleans())
    def read(self, share: float, size_max: int, at_least_one: bool) -> None:
        log = self.log
        offset = log.log_start_offset + int(share * (log.log_end_offset - log.log_start_offset))
        rest = [batch for batch in self.batches if batch.last_offset >= offset]
        found = log.read(offset, size_max, at_least_one=at_least_one)
        if not rest or (not at_least_one and len(rest[0].data) > size_max):
            assert found is None
            return
        assert found is not None
        data = found.read()
        assert b"".join(batch.data for batch in rest).startswith(data)
        assert len(rest[0].data) <= len(data) <= max(size_max, len(rest[0].data))

    @rule(past=st.integers(1, 100))
    def read_outside(self, past: int) -> None:
        for offset in (self.log.log_start_offset - past, self.log.log_end_offset + past):
            try:
                self.log.read(offset, 1 << 20, at_least_one=True)
            except OffsetOutOfRange:
                continue
            raise AssertionError(f"read at {offset}")

    @rule(age_ms=st.integers(-2_000, 60_000))
    def look_up_a_timestamp(self, age_ms: int) -> None:
        timestamp = self.clock.now_ms() - age_ms
        start = self.log.log_start_offset
        records = (r for batch in self.batches for r in batch.records)
        wanted = next((r for r in records if r.timestamp >= timestamp and r.offset >= start), None)
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and (found.offset, found.timestamp)) == (
            wanted and (wanted.offset, wanted.timestamp)
        )

    @rule()
    def look_up_the_largest_timestamp(self) -> None:
        """What is deleted may still lie there, and then counts."""
        known = {
            record.offset: record.timestamp
            for batch in (*self.deleted, *self.batches)
            for record in batch.records
        }
        present = [record for batch in self.batches for record in batch.records]
        found = self.log.offset_of_max_timestamp()
        if found is not None:
            assert known[found.offset] == found.timestamp
            assert not [one for one in present if one.timestamp > found.timestamp]
            same = [one.offset for one in present if one.timestamp == found.timestamp]
            assert found.offset <= min(same, default=found.offset)

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.partition.log

    @invariant()
    def segments_are_in_order(self) -> None:
        log = self.log
        for segment, following in itertools.pairwise(log.segments):
            assert segment.next_offset <= following.base_offset
        assert log.active.next_offset == log.log_end_offset
        assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
        assert log.segments[0].base_offset <= log.log_start_offset <= log.log_end_offset

    def teardown(self) -> None:
        if hasattr(self, "partition"):
            assert read_all(self.log) == self.batches


def _content(partition: Partition) -> tuple[object, ...]:
    """What a recovery must leave as it is: all but the epoch, which each one begins again."""
    log = partition.log
    prefix = f"{log.name}/"
    files = {
        name: octets
        for name, octets in partition.fs.files(Path("/data")).items()  # type: ignore[attr-defined]
        if name.startswith(prefix) and "epoch" not in name
    }
    return log.log_start_offset, log.log_end_offset, len(log.segments), read_all(log), files


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=40)
