"""What is announced of a log's next cleaning is what happens, at any moment of a clock.

Random histories of appends, cleanings, failures and settings end in an announcement. The clock
then goes to the moment before it, where the cleaner takes nothing, and to the moment itself.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.rules.facts import active_segment, note_state
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.rules.quarantine import RETRY_MAX_MS, RETRY_MIN_MS
from odradek.cleaner.rules.why import Answer, Facts, Threads, Verdict, explain
from odradek.cleaner.runtime.roller import Roller
from odradek.cleaner.runtime.scheduler import Scheduler
from odradek.cleaner.runtime.survey import Finding, Noted, assess
from odradek.cleaner.runtime.worker import Rest
from odradek.config.broker import BrokerConfig
from odradek.config.topic import TopicConfig
from odradek.storage.log import Log
from tests.cleaner.worlds import COMPACT, FS, World

pytestmark = pytest.mark.slow

NEVER = 2**63 - 1
YEARS_10_MS = 10 * 365 * 86_400_000
CONFIG = replace(BrokerConfig(), log_cleaner_backoff_ms=600_000)

lags = st.sampled_from([0, 1, 700, 40_000])


@st.composite
def configs(draw: st.DrawFn) -> TopicConfig:
    min_lag_ms = draw(lags)
    return TopicConfig(
        cleanup_policy=COMPACT,
        min_cleanable_dirty_ratio=draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])),
        min_compaction_lag_ms=min_lag_ms,
        max_compaction_lag_ms=draw(
            st.one_of(st.just(NEVER), lags.map(lambda ms: max(ms, min_lag_ms, 1)))
        ),
        delete_retention_ms=draw(st.sampled_from([0, 100, 30_000])),
    )


class Sim:
    """A log, the cleaner's scheduler, and a clock that only a test moves."""

    def __init__(self, path: Path, config: TopicConfig) -> None:
        self.world = World(path, config)
        self.scheduler = Scheduler(self, lambda: CONFIG, self.now_ms)
        self.roller = Roller(self, lambda: CONFIG, self.now_ms, lambda: None)

    def __iter__(self) -> Iterator[Log]:
        return iter([self.world.log])

    def directory_of(self, log: Log) -> object:
        return self.world.directory

    def now_ms(self) -> int:
        return self.world.now_ms

    # --- what may happen ----------------------------------------------------------------------

    def append(self, key: int, value: int, late_ms: int) -> None:
        data = None if value == 0 else b"v%d" % value
        stamps = [self.world.now_ms - late_ms]
        self.world.append([(b"k%d" % key, data)], timestamps=stamps)

    def turn(self, does_fail: bool) -> None:
        """Let a thread have its turn, and its cleaning fail or succeed."""
        running = self.scheduler.take(0)
        assert running is not None
        if isinstance(running, Rest):
            return
        if does_fail:
            self.scheduler.fail(running, ValueError("no"))
            return
        result = clean(
            running.job, fs=FS, random_below=secrets.randbelow, clock_ms=self.now_ms,
            before_io=lambda size: None,
            propose=lambda old, new: self.world.log.replace_segments(old, new, self.now_ms()),
        )  # fmt: skip
        self.scheduler.progress.succeed(running, result)
        self.scheduler.succeed(0, running, result)

    def configure(self, config: TopicConfig) -> None:
        self.world.log.config = config

    def take(self) -> Reason | None:
        """Return why a thread would take the log now, None when it would rest."""
        asyncio.run(self.roller.check_all())
        running = self.scheduler.take(0)
        assert running is not None
        if isinstance(running, Rest):
            return None
        self.scheduler.progress.end(running)
        return running.job.reason

    # --- what is announced ----------------------------------------------------------------------

    def announced(self) -> tuple[Finding, Answer]:
        log, progress = self.world.log, self.scheduler.progress
        key = log.topic, log.partition
        asyncio.run(self.roller.check_all())
        self.scheduler.all_logs()
        noted = Noted(
            note_state(log), log.directory.parent,
            self.world.directory.cleaner_offsets.get(key), progress.standing(log), False,
            progress.horizons.get(key), active_segment(log), Threads(True, 1, 1),
        )  # fmt: skip
        finding = assess(noted, self.now_ms())
        facts = Facts(
            finding.facts, noted.checkpoint, noted.standing, noted.threads, noted.active, None,
            noted.horizon_ms,
        )  # fmt: skip
        return finding, explain(facts, self.now_ms())


Step = Callable[[Sim], None]


def _moved(sim: Sim, by_ms: int) -> None:
    sim.world.now_ms += by_ms


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda *values: lambda sim: sim.append(*values),
        st.integers(0, 3), st.integers(0, 5), st.sampled_from([0, 0, 300, 50_000]),
    ),
    st.just(lambda sim: sim.world.roll()),
    st.just(lambda sim: sim.turn(False)),
    st.just(lambda sim: sim.turn(True)),
    st.builds(
        lambda ms: lambda sim: _moved(sim, ms), st.sampled_from([1, 200, 5_000, 15_000, 100_000])
    ),
    st.builds(lambda config: lambda sim: sim.configure(config), configs()),
    st.just(lambda sim: sim.scheduler.progress.retry_all(sim.now_ms())),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(configs(), st.lists(steps, min_size=4, max_size=25))
def test_a_log_is_cleaned_at_the_moment_that_was_announced_and_no_sooner(
    config: TopicConfig, history: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sim = Sim(Path(folder), config)
        for step in history:
            step(sim)
        finding, answer = sim.announced()
        now_ms, due_ms = sim.now_ms(), answer.due_ms
        assert finding.due_ms == due_ms
        is_now = answer.verdict is Verdict.NOW
        assert is_now == (due_ms == now_ms)
        for entry in sim.scheduler.progress.quarantined:
            assert due_ms == max(entry.retry_at_ms, now_ms)
        was_quarantined = bool(sim.scheduler.progress.quarantined)
        if due_ms is None or due_ms > now_ms:
            sim.world.now_ms = now_ms + YEARS_10_MS if due_ms is None else due_ms - 1
            assert sim.take() is None
        if due_ms is not None:
            sim.world.now_ms = due_ms
            reason = sim.take()
            if was_quarantined:  # what has nothing to clean is taken out of quarantine
                assert reason in (Reason.RETRY, None)
                assert reason or not sim.scheduler.progress.quarantined
            else:
                assert reason is not None
                assert not is_now or reason is answer.reason


def test_a_quarantined_log_below_its_dirty_ratio_is_tried_again_when_announced(
    tmp_path: Path,
) -> None:
    sim = Sim(tmp_path, TopicConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0))
    for key in range(3):
        sim.append(key, 1, 0)
    sim.world.roll()
    sim.turn(True)
    (entry,) = sim.scheduler.progress.quarantined
    lazy = replace(sim.world.log.config, min_cleanable_dirty_ratio=1.0)
    sim.world.log.config = lazy  # which ends the wait
    sim.turn(True)
    wait_ms = 2 * RETRY_MIN_MS
    for failures in range(2, 14):
        (entry,) = sim.scheduler.progress.quarantined
        assert (entry.failures, entry.retry_at_ms) == (failures, sim.now_ms() + wait_ms)
        rest = sim.scheduler.take(0)
        assert isinstance(rest, Rest) and rest.seconds == min(wait_ms, 600_000) / 1000
        sim.world.now_ms = entry.retry_at_ms - 1
        assert sim.take() is None
        sim.world.now_ms = entry.retry_at_ms
        assert sim.take() is Reason.RETRY
        sim.turn(True)
        wait_ms = min(2 * wait_ms, RETRY_MAX_MS)
    sim.world.now_ms += wait_ms
    sim.turn(False)
    assert sim.scheduler.progress.quarantined == ()


def test_a_segment_sealed_in_time_is_due_when_its_last_record_is_old_enough(
    tmp_path: Path,
) -> None:
    lags = TopicConfig(
        cleanup_policy=COMPACT, min_compaction_lag_ms=700, max_compaction_lag_ms=700
    )
    sim = Sim(tmp_path, lags)
    sim.append(0, 1, 300)
    sim.append(0, 2, 0)
    _, answer = sim.announced()
    # It is sealed 701 ms after its first record, and its last one is too young until 700 ms.
    assert answer.due_ms == sim.now_ms() + 700
    sim.world.now_ms += 699
    assert sim.take() is None
    sim.world.now_ms += 1
    assert sim.take() is Reason.OVERDUE
