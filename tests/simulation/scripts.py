"""Runs scripts drawn from seeds: with a crash at each file operation, or a refusal at one."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.ledger import Ledger, check_producers, content_of
from tests.simulation.life import DATA, Life, open_directory
from tests.storage.partition import make_batch

NESTED_CRASHES_MAX = 3
NESTED_SHARE = 0.3
RESTARTED_EACH = 4
NOW_MS = 1_800_000_000_000
LEFT_OVER = (".cleaned", ".swap", ".deleted", ".tmp")

Key = tuple[str, int]


@dataclass
class Survey:
    """What a run has come past: one that came past nothing has shown nothing."""

    crashes: int = 0
    nested: int = 0
    cleanings: int = 0
    stale_cleanings: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """What a ledger promises from before a step on."""

    ledger: Ledger
    flushed_end: int = 0
    start_min: int = 0
    must_exist: bool = False

    @classmethod
    def of(cls, ledger: Ledger) -> Promise:
        """Return what a ledger promises now."""
        return cls(ledger, ledger.flushed_end, ledger.start_min, ledger.must_exist)


def crash_everywhere(seed: int, steps: int) -> Survey:
    """Live by a script; at each file operation of it, check what a crash there leaves."""
    life, survey, source = Life(seed), Survey(), random.Random(seed)
    left: list[CrashFileSystem] = []

    def before(kind: str, path: Path) -> None:
        life.look()
        left.append(life.fs.clone_after_crash(source.getrandbits(32)))

    with naming(seed, life):
        for _ in range(steps):
            life.settle()
            promised = {key: Promise.of(ledger) for key, ledger in life.ledgers.items()}
            may_exist = {key for key, ledger in life.ledgers.items() if ledger.may_exist}
            life.fs.before = before
            life.step()
            life.fs.before = None
            may_exist |= {key for key, ledger in life.ledgers.items() if ledger.may_exist}
            promises = [_kept(promised.get(key), one) for key, one in life.ledgers.items()]
            for fs in left:
                survey.nested += check_survivor(fs, promises, may_exist, source)
            survey.crashes += len(left)
            left.clear()
        life.settle()
        life.end()
    survey.cleanings, survey.stale_cleanings = life.cleanings, life.stale_cleanings
    return survey


def refuse_at(
    seed: int, steps: int, turn: int, *, syncs: bool = False, failed_sync_forgets: bool = False
) -> Survey:
    """Live by a script whose disk refuses one operation: the life goes on, and nothing is lost.

    `turn` counts syncs, or else all other operations. Afterwards kills, crashes and a clean
    stop find all that they must.
    """
    life, source = Life(seed), random.Random(seed)
    count = 0

    def refuse(kind: str, path: Path) -> OSError | None:
        nonlocal count
        if kind.startswith("sync") == syncs:
            count += 1
            if count == turn + 1:
                cause = errno.EIO if syncs or turn % 2 else errno.ENOSPC
                return OSError(cause, f"refused to {kind}")
        return None

    with naming(seed, life, f"turn={turn} syncs={syncs}"):
        life.fs.failed_sync_forgets = failed_sync_forgets
        life.fs.refuse = refuse
        for _ in range(steps):
            life.step()
            life.settle()
        life.fs.refuse = None
        may_exist = {key for key, ledger in life.ledgers.items() if ledger.may_exist}
        promises = [Promise.of(ledger) for ledger in life.ledgers.values()]
        for _ in range(3):
            crashed = life.fs.clone_after_crash(source.getrandbits(32))
            check_survivor(crashed, promises, may_exist, source)
        if not life.doomed:
            life.end()
    return Survey(refusals=life.refusals, cleanings=life.cleanings)


def count_operations(seed: int, steps: int, *, syncs: bool = False) -> int:
    """Return how many operations a script has that refuse_at() could refuse."""
    life, count = Life(seed), 0

    def before(kind: str, path: Path) -> None:
        nonlocal count
        count += kind.startswith("sync") == syncs

    life.fs.before = before
    for _ in range(steps):
        life.step()
        life.settle()
    return count


def check_survivor(
    fs: CrashFileSystem, promises: list[Promise], may_exist: set[Key], source: random.Random
) -> int:
    """Check what a crash has left, crashing again while it is loaded now and then.

    Returns how often.
    """
    nested = 0
    while nested < NESTED_CRASHES_MAX and source.random() < NESTED_SHARE:
        fs = _crash_while_loading(fs, promises, source)
        nested += 1
    directory, logs = _load(fs, promises)
    for promise in promises:
        ledger = promise.ledger
        log = logs.get(ledger.key)
        assert log is not None or not promise.must_exist, f"{ledger.key} is gone"
        assert log is None or ledger.key in may_exist, f"{ledger.key} came back"
        if log is not None:
            ledger.check(log, promise.flushed_end, promise.start_min)
    in_partitions = [name for name in fs.files(DATA) if "/" in name]
    left_over = [name for name in in_partitions if name.endswith(LEFT_OVER) or "-delete/" in name]
    assert not left_over, left_over
    found = _state(logs, promises)
    # Who loads it again, after one more crash or a kill, finds the same.
    seed = source.getrandbits(32)
    again = fs.clone_after_crash(seed) if seed % 3 else fs.clone_after_kill()
    _same(_state(_load(again, promises)[1], promises), found, "a second recovery")
    for promise in promises:
        if promise.ledger.key in logs:
            _go_on(promise.ledger, logs[promise.ledger.key])
    if seed % RESTARTED_EACH:
        return nested
    found = _state(logs, promises)
    directory.close()
    _same(_state(_load(fs, promises)[1], promises), found, "a clean restart")
    return nested


@contextmanager
def naming(seed: int, life: Life, note: str = "") -> Iterator[None]:
    """Print what a failure within can be had again with."""
    try:
        yield
    except BaseException:
        print(f"seed={seed} {note} the script, its last step the one that failed:")
        print("\n".join(life.script))
        raise


def _kept(before: Promise | None, ledger: Ledger) -> Promise:
    """Return what is promised while a step is under way."""
    if before is None or before.ledger is not ledger:
        return Promise(ledger)
    return Promise(
        ledger, before.flushed_end, before.start_min, before.must_exist and ledger.must_exist
    )


def _load(
    fs: CrashFileSystem, promises: list[Promise]
) -> tuple[LogDirectory, dict[Key, Log]]:
    directory = open_directory(fs)
    there, logs = directory.partitions(), {}
    for promise in promises:
        ledger = promise.ledger
        if ledger.key in there:
            # Without an id is one whose creation was cut short.
            assert there[ledger.key] in (ledger.topic_id, None), f"{ledger.key}: another topic's"
            logs[ledger.key] = directory.create_log(
                *ledger.key, ledger.topic_id, ledger.config, now_ms=NOW_MS
            )
    return directory, logs


def _crash_while_loading(
    fs: CrashFileSystem, promises: list[Promise], source: random.Random
) -> CrashFileSystem:
    """Return what is left when the power fails at some operation of a recovery."""
    chosen = fs
    count = 0

    def before(kind: str, path: Path) -> None:
        nonlocal chosen, count
        count += 1
        if source.randrange(count) == 0:
            chosen = fs.clone_after_crash(source.getrandbits(32))

    fs.before = before
    _load(fs, promises)
    assert count, "nothing was written"
    return chosen


def _state(logs: dict[Key, Log], promises: list[Promise]) -> dict[tuple[str, int, str], object]:
    """What a second recovery finds again: all but the epoch, which each one begins again."""
    state: dict[tuple[str, int, str], object] = {}
    for ledger in (promise.ledger for promise in promises if promise.ledger.key in logs):
        log = logs[ledger.key]
        state[*ledger.key, "offsets"] = log.log_start_offset, log.log_end_offset
        state[*ledger.key, "batches"] = content_of(log.segments)
        if not ledger.is_trimmed:
            # Those whose records were deleted are known as long as a snapshot tells of them.
            state[*ledger.key, "producers"] = {
                one.producer_id: (one.epoch, one.last_sequence)
                for one in log.producers
                if one.last_data_offset >= log.log_start_offset
            }
    return state


def _same(found: dict[Any, object], expected: dict[Any, object], what: str) -> None:
    differing = [
        f"{key}: {found.get(key)} and not {expected.get(key)}"
        for key in expected.keys() | found.keys()
        if found.get(key) != expected.get(key)
    ]
    assert not differing, f"{what} found {differing}"


def _go_on(ledger: Ledger, log: Log) -> None:
    """Check that producers may go on where they were."""
    check_producers(ledger, log, NOW_MS)
    end = log.log_end_offset
    done = log.append(make_batch([(b"k", b"after")], NOW_MS), now_ms=NOW_MS)
    assert done.base_offset == end
    for state in list(log.producers):
        producer = state.producer_id, state.epoch, state.last_sequence + 1
        done = log.append(make_batch([(b"k", b"v")], NOW_MS, producer=producer), now_ms=NOW_MS)
        assert not done.is_duplicate
