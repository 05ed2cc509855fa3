"""Transactions of some producers beside a plain list of them, through crashes and restarts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.storage.segment import SNAPSHOT, TXN_INDEX
from tests.simulation.clock import SimulatedClock
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import Partition
from tests.storage.transactional import Entry, committed_offsets, end, expect, indexed, write

PRODUCERS = st.sampled_from([3, 4, 5])
SEEDS = st.integers(0, 2**32)
FILES = Path("/data/orders-0")


class TransactionMachine(RuleBasedStateMachine):
    """Whatever happens, readers see each transaction that was committed, and no other."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimulatedClock()
        self.partition = Partition(CrashFileSystem(self.clock), clock=self.clock)
        self.entries: list[Entry] = []
        self.epochs = dict.fromkeys((3, 4, 5), 0)
        self.flushed_end = 0

    # --- writing --------------------------------------------------------------------------

    @rule(producer_id=PRODUCERS, sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3))
    def write(self, producer_id: int, sizes: list[int]) -> None:
        state = self.log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        epoch = self.epochs[producer_id]
        self.entries.append(
            write(self.partition, producer_id, epoch, sequence, *map(bytes, sizes))
        )

    @rule(producer_id=PRODUCERS, commit=st.booleans(), raises_epoch=st.booleans())
    def end(self, producer_id: int, commit: bool, raises_epoch: bool) -> None:
        self.epochs[producer_id] += raises_epoch
        epoch = self.epochs[producer_id]
        self.entries.append(end(self.partition, producer_id, epoch, commit=commit))

    @rule(count=st.integers(1, 20))
    def write_plainly(self, count: int) -> None:
        for at in range(count):
            done = self.partition.append([(b"k", bytes(at * 5))])
            self.entries.append(Entry(done.base_offset, done.last_offset, -1))
            self.clock.advance(3)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.now_ms())

    @rule()
    def flush(self) -> None:
        self.partition.flush()
        self.flushed_end = self.log.log_end_offset

    @rule()
    def checkpoint(self) -> None:
        self.partition.directory.write_checkpoints()

    # --- lives ----------------------------------------------------------------------------

    @rule(loses=st.sampled_from([None, SNAPSHOT]))
    def restart(self, loses: str | None) -> None:
        self.partition.directory.close()
        fs = self.partition.fs
        for name in fs.list(FILES):
            if loses is not None and name.endswith(loses):
                fs.remove(FILES / name)
        self.partition = self.partition.next_life()
        self.flushed_end = self.log.log_end_offset

    @rule(position=st.floats(0, 1, exclude_max=True))
    def restart_with_a_damaged_index(self, position: float) -> None:
        self.partition.directory.close()
        fs = self.partition.fs
        for name in fs.list(FILES):
            if name.endswith(TXN_INDEX):
                data = fs.read_bytes(FILES / name)
                fs.write_bytes(FILES / name, data[: int(len(data) * position) // 34 * 34 + 1])
        self.partition = self.partition.next_life()
        self.flushed_end = self.log.log_end_offset

    @rule(seed=SEEDS)
    def lose_power(self, seed: int) -> None:
        self._recover(self._fs.clone_after_crash(seed))

    @rule()
    def lose_the_process(self) -> None:
        self._recover(self._fs.clone_after_kill())

    def _recover(self, fs: CrashFileSystem) -> None:
        self.partition = self.partition.next_life(fs)
        log = self.log
        found = {header.base_offset for header, _ in log.batches(0)}
        assert log.log_end_offset >= self.flushed_end
        flushed = {e.base_offset for e in self.entries if e.last_offset < self.flushed_end}
        assert flushed <= found, "flushed and lost"
        self.entries = [one for one in self.entries if one.base_offset in found]
        for producer_id in self.epochs:
            state = log.producers.get(producer_id)
            self.epochs[producer_id] = state.epoch if state is not None else 0

    # --- reading --------------------------------------------------------------------------

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        expected = expect(self.entries, self.log.log_end_offset)
        assert self.log.last_stable_offset == expected.last_stable_offset
        assert list(committed_offsets(self.log)) == expected.committed

    @rule(size_max=st.integers(0, 1_000))
    def read_in_small_pieces(self, size_max: int) -> None:
        expected = expect(self.entries, self.log.log_end_offset)
        assert list(committed_offsets(self.log, size_max)) == expected.committed

    @invariant()
    def indexes_name_what_is_aborted(self) -> None:
        assert indexed(self.log) == expect(self.entries, self.log.log_end_offset).aborted

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.partition.log

    @property
    def _fs(self) -> CrashFileSystem:
        fs = self.partition.fs
        assert isinstance(fs, CrashFileSystem)
        return fs


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(stateful_step_count=30)
