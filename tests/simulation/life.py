"""A log directory that lives by a script drawn from a seed, its ledgers kept beside it.

Each step does with the real directory what the broker does: appends, group commits with other
steps in between, rolls, cleanings, retention, DeleteRecords, checkpoints, topics that come and
go, stops, kills, power failures. The same seed always gives the same script.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from odradek.cleaner.runtime.deleter import check_retention
from odradek.config.topic import TopicConfig
from odradek.protocol.compression import Codec
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from tests.cleaner.once import clean_once
from tests.simulation.cleaning import clean_meanwhile
from tests.simulation.clock import SimulatedClock
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.ledger import Ledger, Sent, content_of, latest_values
from tests.storage.partition import COMPACT, KeyValue, StoredBatch, make_batch

DATA = Path("/data")
SMALL = TopicConfig(
    internal_segment_bytes=900,
    index_interval_bytes=150,
    segment_index_bytes=1_000,
    segment_ms=10_000,
    file_delete_delay_ms=1_000,
    delete_retention_ms=500,
    min_cleanable_dirty_ratio=0.0,
    retention_bytes=3_000,
)
COMPACTED = replace(SMALL, cleanup_policy=COMPACT)
BOTH = replace(SMALL, cleanup_policy=frozenset({"compact", "delete"}))
LASTING = {("orders", 0): SMALL, ("prices", 0): COMPACTED, ("both", 0): BOTH}
BRIEF = ("brief", 0)
PRODUCERS = (7, 8)

Step = Callable[[], None]


class Life:
    """A directory, its ledgers and its script so far."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.clock = SimulatedClock()
        self.fs = CrashFileSystem(self.clock)
        self.script: list[str] = []
        self.ledgers: dict[tuple[str, int], Ledger] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self.doomed: set[tuple[str, int]] = set()  # whose deletion the disk has interrupted
        self.refusals = 0
        self.cleanings = 0
        self.stale_cleanings = 0  # those that something else came before
        self.cleaned_meanwhile: Log | None = None
        self._is_brief_changed = False
        self.directory = open_directory(self.fs)
        for key, config in LASTING.items():
            self._create(key, config)

    def step(self) -> None:
        """Draw the next step and take it."""
        steps: dict[Step, int] = {
            self._append: 30,
            self._flush: 10,
            self._flush_meanwhile: 8,
            self._clean: 6,
            self._clean_meanwhile: 8,
            self._retain: 5,
            self._delete_records: 4,
            self._checkpoint: 5,
            self._remove_files: 3,
            self._roll: 3,
            self._wait: 5,
            self._brief_topic: 3,
            self._restart: 2,
            self._lose_process: 2,
            self._lose_power: 2,
        }
        (chosen,) = self.source.choices(list(steps), list(steps.values()))
        chosen()
        self.look()

    def look(self) -> None:
        """Note what readers find now, after a step or in the midst of one."""
        for key, log in self.logs.items():
            self.ledgers[key].look(log)

    def settle(self) -> None:
        """Begin the next step from what the last one has come to."""
        for key, log in self.logs.items():
            self.ledgers[key].settle(log)

    def end(self) -> None:
        """Stop cleanly, and start again: everything is there."""
        self._restart()
        self.settle()

    # --- writing ------------------------------------------------------------------------------

    def _append(self) -> None:
        log = self._any_log()
        key = log.topic, log.partition
        for _ in range(self.source.choice([1, 4, 8, 12])):
            self._append_batch(key)

    def _append_batch(self, key: tuple[str, int]) -> None:
        source, log, ledger = self.source, self.logs[key], self.ledgers[key]
        records: list[KeyValue] = [
            (b"k%d" % source.randrange(6), source.choice([None, b"", b"v" * 20, b"w" * 120]))
            for _ in range(source.choice([1, 1, 2, 5]))
        ]
        now_ms = self.clock.advance(source.choice([0, 1, 40]))
        codec = source.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4])
        producer_id = source.choice([None, *PRODUCERS])
        known = log.producers.get(producer_id) if producer_id is not None else None
        sequence = known.last_sequence + 1 if known else 0
        producer = None if producer_id is None else (producer_id, 0, sequence)
        ages = [now_ms - source.randrange(200) for _ in records]
        self.note(f"append {log.name} records={len(records)} {codec.name} {producer}")
        end, before = log.log_end_offset, content_of(log.segments)
        batch = make_batch(
            records,
            ages,
            codec=codec,
            producer=producer,
            base_offset=end,
            leader_epoch=log.leader_epoch,
        )
        last = end + len(records) - 1
        with self.refusable() as refused:
            done = log.append(make_batch(records, ages, codec=codec, producer=producer),
                              now_ms=now_ms)
            assert (done.base_offset, done.last_offset, done.is_duplicate) == (end, last, False)
        if refused:
            assert content_of(log.segments) == before
            assert log.log_end_offset == end
            ledger.refused.add(StoredBatch(end, last, batch))
            return
        assert content_of(log.segments) == (*before, StoredBatch(end, last, batch))
        if producer_id is not None:
            ledger.sent.append(Sent(producer_id, sequence, end, last))

    def _roll(self) -> None:
        log = self._any_log()
        self.note(f"roll {log.name}")
        with self.refusable():
            log.roll(self.clock.now_ms())

    def _wait(self) -> None:
        self.note("wait")
        self.clock.advance(self.source.choice([100, 700, 11_000]))

    def _flush(self) -> None:
        for log in self.source.choice([[self._any_log()], list(self.logs.values())]):
            self._flush_around(log, lambda: None)

    def _flush_meanwhile(self) -> None:
        """A group commit in its thread, and what the loop does until it is done."""
        steps = [self._append, self._clean, self._retain, self._brief_topic]
        self._flush_around(self._any_log(), self.source.choice(steps))

    def _flush_around(self, log: Log, meanwhile: Step) -> None:
        ledger = self.ledgers[log.topic, log.partition]
        part = log.unflushed()
        self.note(f"flush {log.name} up to {part.end_offset}")
        meanwhile()
        self.note(f"flushed {log.name}")
        with self.refusable() as refused:
            part.sync()
        if refused:
            if not log.is_closed:
                self.reload(log, refused[0])
            return
        log.flushed(part.end_offset)
        if part.directory is not None:
            ledger.may_be_cleaned = False
        ledger.flushed_end = max(ledger.flushed_end, part.end_offset)

    def reload(self, failed: Log, cause: DiskFailure) -> None:
        """Give up a log whose flush was refused, and load it again, as the broker does."""
        key = failed.topic, failed.partition
        ledger = self.ledgers[key]
        self.note(f"reload {failed.name}")
        failed.failure = cause
        before = content_of(failed.segments)
        self.directory.withdraw(failed)
        identity = LogIdentity(*key, ledger.topic_id)
        log = self.directory.open_log(
            identity, ledger.config, now_ms=self.clock.now_ms(), failed=failed
        )
        self.directory.add(log)
        self.logs[key] = log
        if failed is not self.cleaned_meanwhile:  # else recovery may have finished an exchange
            assert content_of(log.segments) == before
        ledger.flushed_end = max(ledger.flushed_end, log.recovery_point)

    # --- cleaning and trimming ----------------------------------------------------------------

    def _clean(self) -> None:
        log = self._any_log(lambda log: log.config.compact)
        key = log.topic, log.partition
        self.note(f"clean {log.name}")
        now_ms = self.clock.advance(self.source.choice([0, 600]))
        start = log.log_start_offset
        before = content_of(log.segments)
        with self.refusable() as refused:
            result = clean_once(
                log, self.directory, now_ms, fs=self.fs, random_below=self.source.randrange
            )
            if result is not None:
                self.cleanings += 1
        after = content_of(log.segments)
        assert latest_values(after, start) == latest_values(before, start)
        self.ledgers[key].look(log)
        if refused:
            self.ledgers[key].obsolete |= set(before) - set(after)
            self.ledgers[key].may_be_cleaned = True
            if log.sync_failure is not None:
                self.reload(log, log.sync_failure)

    def _clean_meanwhile(self) -> None:
        sealed = [log for log in self.logs.values() if len(log.segments) > 1]
        if not any(log.config.compact for log in sealed):
            return
        log = self._any_log(lambda log: log.config.compact and log in sealed)
        self.note(f"clean {log.name} in a thread")
        self.clock.advance(self.source.choice([0, 600]))
        self._is_brief_changed = False
        clean_meanwhile(self, log, self._meanwhile)

    def _meanwhile(self) -> None:
        """What the event loop may do between the steps of a thread."""
        steps = [
            self._append,
            self._flush,
            self._retain,
            self._trim,
            self._trim,
            self._roll,
            self._checkpoint,
            self._remove_files,
            self._wait,
        ]
        if not self._is_brief_changed:  # the ledgers know one topic of a name in a step
            steps.append(self._brief_topic)
        self.source.choice(steps)()
        self.look()

    def _retain(self) -> None:
        log = self._any_log()
        self.note(f"retain {log.name}")
        check_retention(log, self.clock.now_ms())

    def _delete_records(self) -> None:
        log = self._any_log(lambda log: log.config.delete)
        offset = self.source.randint(log.log_start_offset, log.log_end_offset)
        self.note(f"delete records {log.name} before {offset}")
        ledger = self.ledgers[log.topic, log.partition]
        ledger.start_max = max(ledger.start_max, offset)
        with self.refusable():
            log.advance_start_offset(offset)

    def _trim(self) -> None:
        self._delete_records()
        self._retain()

    def _remove_files(self) -> None:
        self.note("remove files")
        with self.refusable():
            self.directory.remove(self.directory.take_due_removals(self.clock.now_ms()))

    def _checkpoint(self) -> None:
        self.note("checkpoint")
        with self.refusable() as refused:
            self.directory.write_checkpoints()
        if not refused:
            for key, log in self.logs.items():
                low = min(log.log_start_offset, log.recovery_point)
                self.ledgers[key].start_min = max(self.ledgers[key].start_min, low)

    # --- topics -------------------------------------------------------------------------------

    def _brief_topic(self) -> None:
        self._is_brief_changed = True
        if BRIEF not in self.logs:
            if BRIEF not in self.doomed:
                self._create(BRIEF, self.source.choice([SMALL, COMPACTED, BOTH]))
            return
        self.note("delete topic")
        log, ledger = self.logs.pop(BRIEF), self.ledgers[BRIEF]
        ledger.must_exist = False
        ledger.look(log)
        with self.refusable() as refused:
            self.directory.delete_log(log, self.clock.now_ms())
        if refused:
            self.doomed.add(BRIEF)
        else:
            ledger.may_exist = False

    def _create(self, key: tuple[str, int], config: TopicConfig) -> None:
        topic_id = self.source.randbytes(16)
        self.note(f"create {key} {sorted(config.cleanup_policy)}")
        ledger = self.ledgers[key] = Ledger(*key, topic_id, config)
        refused: list[DiskFailure] = [DiskFailure(DATA, OSError())]
        while refused:
            with self.refusable() as refused:
                self.logs[key] = self.directory.create_log(
                    *key, topic_id, config, now_ms=self.clock.now_ms()
                )
        ledger.must_exist = True

    # --- lives --------------------------------------------------------------------------------

    def _restart(self) -> None:
        self.note("restart")
        ends = {key: (log.log_start_offset, log.log_end_offset) for key, log in self.logs.items()}
        with self.refusable() as refused:
            self.directory.close()
        if not refused:
            for key, log in self.logs.items():
                self.ledgers[key].flushed_end = log.log_end_offset
                self.ledgers[key].start_min = log.log_start_offset
            self._start(self.fs)
            found = {k: (log.log_start_offset, log.log_end_offset) for k, log in self.logs.items()}
            assert found == ends
        else:
            self._start(self.fs.clone_after_kill())

    def _lose_process(self) -> None:
        self.note("lose process")
        ends = {key: log.log_end_offset for key, log in self.logs.items()}
        self._start(self.fs.clone_after_kill())
        assert {key: log.log_end_offset for key, log in self.logs.items()} == ends

    def _lose_power(self) -> None:
        self.note("lose power")
        self._start(self.fs.clone_after_crash(self.source.getrandbits(32)))

    def _start(self, fs: CrashFileSystem) -> None:
        """Begin the next life of the process on what a file system holds."""
        fs.before, fs.refuse = self.fs.before, self.fs.refuse
        fs.failed_sync_forgets = self.fs.failed_sync_forgets
        keys = list(self.logs)
        refused: list[DiskFailure] = [DiskFailure(DATA, OSError())]
        while refused:
            self.directory._lock = None
            self.fs, self.logs = fs, {}
            with self.refusable() as refused:
                self.directory = open_directory(fs)
                self._finish_deletions()
                for key in keys:
                    ledger = self.ledgers[key]
                    log = self.directory.create_log(
                        *key, ledger.topic_id, ledger.config, now_ms=self.clock.now_ms()
                    )
                    ledger.check(log, ledger.flushed_end, ledger.start_min)
                    self.logs[key] = log
                    there = {batch.base_offset for batch in content_of(log.segments)}
                    ledger.sent = [s for s in ledger.sent if s.base_offset in there]
            if refused:  # the process ends, and is started again
                fs = fs.clone_after_kill()
                fs.before, fs.refuse = self.fs.before, self.fs.refuse

    def _finish_deletions(self) -> None:
        for key in sorted(self.doomed & self.directory.partitions().keys()):
            ledger = self.ledgers[key]
            now_ms = self.clock.now_ms()
            log = self.directory.create_log(*key, ledger.topic_id, ledger.config, now_ms=now_ms)
            self.directory.delete_log(log, now_ms)
        for key in self.doomed:
            self.ledgers[key].may_exist = False
        self.doomed.clear()

    # --- within -------------------------------------------------------------------------------

    def _any_log(self, suits: Callable[[Log], bool] = lambda log: True) -> Log:
        busy = self.cleaned_meanwhile
        if busy in self.logs.values() and suits(busy) and self.source.random() < 0.7:
            return busy
        return self.source.choice([log for log in self.logs.values() if suits(log)])

    def note(self, line: str) -> None:
        self.script.append(line)

    @contextmanager
    def refusable(self) -> Iterator[list[DiskFailure]]:
        """Let the disk refuse what is done within; the list says whether it did."""
        refused: list[DiskFailure] = []
        try:
            yield refused
        except DiskFailure as error:
            self.hear(error)
            refused.append(error)

    def hear(self, error: DiskFailure) -> None:
        """Note that the disk has refused something, if the test asked for it."""
        if self.fs.refuse is None:
            raise error
        self.note(f"  refused: {error}")
        self.refusals += 1


def open_directory(fs: CrashFileSystem) -> LogDirectory:
    """Open the directory of a life."""
    return LogDirectory(fs, DATA, cluster_id="c", node_id=1)
