"""What goes wrong in the cleaner of a running broker: said loudly, kept apart, tried again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.cleaner.rules.quarantine import RETRY_MIN_MS, Quarantined
from odradek.cleaner.runtime import deaths, inspection
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.cleaner.runtime.progress import Candidate, NotedLog
from odradek.cleaner.runtime.scheduler import Scheduler
from odradek.protocol import batch_scan
from odradek.storage.checkpoints import CLEANER_OFFSETS
from odradek.storage.log import Log
from odradek.storage.segment import LOG
from tests.broker.cleaning import (
    MovedClock,
    alter_broker,
    alter_topic,
    cleaning,
    is_compacted,
    latest,
    looked,
    new_log,
    numbered,
    put,
    settled,
)
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_metrics import HTTP, get, health, parse, value
from tests.simulation.faultyfs import DISK_FULL, FaultyFileSystem

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
POISON = b"poison"


class Killed(BaseException):
    """What no handler of exceptions stops."""


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | None], None]:
    """Make a kernel raise an error when it meets a log with a poisonous key, until told None."""
    really = batch_scan.scan_batches
    monkeypatch.setattr(deaths, "_RESTART_MIN_S", 0.01)

    def poison(error: BaseException | None) -> None:
        def scan(data: Any, *rest: Any) -> Any:
            if error is not None and POISON in data.tobytes():
                raise error
            return really(data, *rest)

        monkeypatch.setattr(batch_scan, "scan_batches", scan)

    return poison


def quarantined(broker: Broker) -> Quarantined | None:
    found = broker.cleaner.status().quarantined
    assert len(found) <= 1
    return found[0] if found else None


async def two_logs(broker: Broker) -> tuple[Log, Log]:
    bad, good = await new_log(broker, "bad"), await new_log(broker, "good")
    put(bad, "poison:1 poison:2 " + numbered(0, 20))
    put(good, numbered(0, 20))
    return bad, good


@on_uvloop
@pytest.mark.parametrize("kind", [ValueError, MemoryError])
async def test_an_exception_concerns_one_log_and_no_thread(
    tmp_path: Path,
    poisoned: Callable[[BaseException | None], None],
    kind: type[Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    poisoned(kind("out of the blue"))
    async with cleaning(tmp_path, HTTP) as (broker, one):
        bad, good = await two_logs(broker)
        await until(lambda: is_compacted(good) and quarantined(broker))
        assert not is_compacted(bad)
        assert broker.cleaner.status().threads_died == 0
        status, body = await health(broker)
        assert status == 503
        said = f"{kind.__name__}: out of the blue"
        assert body["problems"] == [f"partition bad-0 cannot be cleaned: {said}"]
        # A restart would mend nothing, and clients are served.
        assert [(await get(broker, f"/health/{one}"))[0] for one in ("live", "ready")] == [200] * 2
        (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert "log=bad-0" in record.getMessage() and said in record.getMessage()
        assert record.exc_info is not None  # with its trace
        poisoned(None)
        await alter_topic(one, "bad", {"min.cleanable.dirty.ratio": "0.01"})
        await until(lambda: is_compacted(bad) and not quarantined(broker))
        assert await health(broker) == (200, {"status": "ok", "problems": []})


@on_uvloop
async def test_a_log_that_cannot_be_looked_at_keeps_no_other_from_being_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = inspection.assess

    def assess(noted: NotedLog, now_ms: int) -> Candidate:
        if noted.log.topic == "bad":
            raise IndexError("a bug")
        return really(noted, now_ms)

    async with cleaning(tmp_path) as (broker, _):
        monkeypatch.setattr(inspection, "assess", assess)
        bad, good = await two_logs(broker)
        await until(lambda: is_compacted(good) and quarantined(broker))
        assert broker.cleaner.status().threads_died == 0
        assert "partition bad-0 cannot be cleaned: IndexError" in broker.problems()[0]
        assert not is_compacted(bad)


@on_uvloop
async def test_a_thread_that_dies_is_replaced_and_its_log_cannot_kill_the_next(
    tmp_path: Path, poisoned: Callable[[BaseException | None], None]
) -> None:
    poisoned(Killed("out of the blue"))
    clock = MovedClock()
    async with cleaning(tmp_path, HTTP, clock=clock) as (broker, one):
        bad, good = await two_logs(broker)
        await until(lambda: is_compacted(good) and quarantined(broker))
        status = broker.cleaner.status()
        assert (status.threads_alive, status.threads_died) == (1, 1)
        code, body = await health(broker)
        assert code == 503 and len(body["problems"]) == 2
        assert all("Killed: out of the blue" in problem for problem in body["problems"])

        poisoned(None)
        await alter_topic(one, "bad", {"min.cleanable.dirty.ratio": "0.01"})
        await until(lambda: is_compacted(bad) and not quarantined(broker))
        clock.ahead_ms += HOUR_MS - 60_000
        (problem,) = (await health(broker))[1]["problems"]
        assert "cleaner threads died" in problem
        clock.ahead_ms += 60_000
        assert await health(broker) == (200, {"status": "ok", "problems": []})
        families = parse((await get(broker, "/metrics"))[1])
        assert value(families, "odradek_cleaner_threads_died") == 1
        assert value(families, "kafka_log_logcleaner_deadthreadcount") == 0


def _have_died(broker: Broker, count: int) -> bool:
    return broker.cleaner.status().threads_died >= count


@on_uvloop
async def test_threads_that_die_again_and_again_fail_the_health_all_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "_RESTART_MIN_S", 0.0)

    def die(*_: object) -> None:
        raise Killed("once more")

    async with cleaning(tmp_path, HTTP) as (broker, _):
        with monkeypatch.context() as patched:
            patched.setattr(Scheduler, "take", die)
            for count in (1, 5, 25):
                await until(partial(_have_died, broker, count))
                status, body = await health(broker)
                assert status == 503 and "cleaner threads died" in body["problems"][0]
        log = await new_log(broker, "t")
        put(log, numbered(0, 20))
        await until(lambda: is_compacted(log))


@on_uvloop
async def test_a_thread_that_cannot_be_replaced_fails_the_health_all_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "_RESTART_MIN_S", 0.0)
    clock = MovedClock()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(CleanerPool, "_start_thread", refuse)
        async with cleaning(tmp_path, HTTP, clock=clock) as (broker, _):
            await until(lambda: broker.cleaner.status().threads_died > 1)
            clock.ahead_ms += 10 * HOUR_MS
            status, body = await health(broker)
            assert status == 503 and "can't start new thread" in body["problems"][0]
            patched.undo()
            await until(lambda: broker.cleaner.status().threads_alive == 1)
            assert (await health(broker))[0] == 503
            clock.ahead_ms += HOUR_MS
            assert (await health(broker))[0] == 200


# --- damage -----------------------------------------------------------------------------------

DAMAGED_OFFSET = 5


class Damage:
    """A byte of a record of a log, which is wrong until it is mended."""

    def __init__(self, log: Log, offset: int) -> None:
        for segment in log.segments:
            for position, header, _ in segment.batches():
                if header.base_offset == offset:
                    self.path, self.position = segment.path(LOG), position
                    self._at = position + header.size_bytes - 2
        self._flip()

    def _flip(self) -> None:
        with self.path.open("r+b") as file:
            file.seek(self._at)
            byte = file.read(1)
            file.seek(self._at)
            file.write(bytes([byte[0] ^ 0xFF]))

    def mend(self) -> None:
        self._flip()


async def damaged_log(broker: Broker) -> tuple[Log, Damage]:
    """Create a compacted log with a damaged batch, and wait until it is in quarantine."""
    broker.cleaner.pause("t", 0)
    log = await new_log(broker, "t")
    put(log, numbered(0, 20))
    damage = Damage(log, DAMAGED_OFFSET)
    broker.cleaner.resume("t", 0)
    await until(lambda: quarantined(broker))
    return log, damage


@on_uvloop
async def test_damage_is_named_with_its_file_position_and_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cleaning(tmp_path, HTTP) as (broker, _):
        log, damage = await damaged_log(broker)
        entry = quarantined(broker)
        assert entry is not None
        assert (entry.file, entry.position, entry.offset) == (
            str(damage.path),
            damage.position,
            DAMAGED_OFFSET,
        )
        where = f"log=t-0 file={damage.path} position={damage.position} offset={DAMAGED_OFFSET}"
        errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert any(where in message and "CorruptFile" in message for message in errors)
        families = parse((await get(broker, "/metrics"))[1])
        labels = {
            "topic": "t",
            "partition": "0",
            "exception": "CorruptFile",
            "file": str(damage.path),
            "position": str(damage.position),
            "offset": str(DAMAGED_OFFSET),
        }
        assert value(families, "odradek_cleaner_uncleanable", **labels) == 1
        status, body = await health(broker)
        sentence = f"partition t-0 cannot be cleaned from offset {DAMAGED_OFFSET} on: "
        (problem,) = [one for one in body["problems"] if one.startswith(sentence)]
        assert status == 503 and str(damage.path) in problem
        assert log.log_end_offset == 20  # nothing of it was lost
        damage.mend()


@on_uvloop
@pytest.mark.parametrize("cause", ["time", "topic", "broker", "rate"])
async def test_a_mended_partition_is_cleaned_at_the_next_try(tmp_path: Path, cause: str) -> None:
    clock = MovedClock()
    async with cleaning(tmp_path, HTTP, clock=clock) as (broker, one):
        log, damage = await damaged_log(broker)
        damage.mend()
        await alter_broker(one, {"num.io.threads": "3"})  # that has nothing to do with it
        await looked(broker)
        entry = quarantined(broker)
        assert entry is not None and entry.failures == 1
        if cause == "time":
            clock.ahead_ms += RETRY_MIN_MS
        elif cause == "topic":
            await alter_topic(one, "t", {"max.message.bytes": "2000000"})
        elif cause == "broker":
            await alter_broker(one, {"log.cleaner.dedupe.buffer.size": "200000000"})
        else:
            await alter_broker(one, {"log.cleaner.io.max.bytes.per.second": "1e9"})
        await until(lambda: is_compacted(log) and not quarantined(broker))
        assert latest(log) == {b"k0": b"18", b"k1": b"19"}
        families = parse((await get(broker, "/metrics"))[1])
        assert families["odradek_cleaner_uncleanable"].samples == []
        clock.ahead_ms += 60_000  # the disk has been well for a while
        await until(lambda: broker.problems() == [])


@on_uvloop
async def test_a_partition_that_is_not_mended_fails_again_and_waits_longer(tmp_path: Path) -> None:
    clock = MovedClock()
    async with cleaning(tmp_path, clock=clock) as (broker, one):
        _, damage = await damaged_log(broker)
        for failures in (2, 3):
            await alter_topic(one, "t", {"max.message.bytes": f"{failures}000000"})
            await until(partial(_has_failed, broker, failures))
        entry = quarantined(broker)
        assert entry is not None
        wait_ms = entry.retry_at_ms - clock.now_ms()
        assert 2 * RETRY_MIN_MS < wait_ms <= 4 * RETRY_MIN_MS
        damage.mend()


async def get_json(broker: Broker, path: str) -> Any:
    status, body = await get(broker, path)
    assert status == 200
    return json.loads(body)


def _has_failed(broker: Broker, count: int) -> bool:
    entry = quarantined(broker)
    return entry is not None and entry.failures == count


@on_uvloop
async def test_a_quarantined_log_is_tried_again_when_announced_however_clean_it_is(
    tmp_path: Path,
) -> None:
    clock = MovedClock()
    async with cleaning(tmp_path, HTTP, clock=clock) as (broker, one):
        log, damage = await damaged_log(broker)
        await alter_topic(one, "t", {"min.cleanable.dirty.ratio": "1"})
        await until(partial(_has_failed, broker, 2))  # by the end of its wait
        for failures in (3, 4):
            entry = quarantined(broker)
            assert entry is not None
            (told,) = (await get_json(broker, "/api/cleaner"))["quarantined"]
            history = await get_json(broker, "/api/cleaner/history?topic=t&partition=0")
            why = await get_json(broker, "/api/cleaner/why?topic=t&partition=0")
            plans = (await get_json(broker, "/api/cleaner/plan"))["plans"]
            families = parse((await get(broker, "/metrics"))[1])
            metric = value(
                families, "odradek_cleaner_due_timestamp_seconds", topic="t", partition="0"
            )
            announced = [
                told["due_ms"], told["retry_at_ms"], history["quarantined"]["due_ms"],
                why["due_ms"], plans[0]["due_ms"], round(metric * 1000),
            ]  # fmt: skip
            assert announced == [entry.retry_at_ms] * 6
            clock.ahead_ms += entry.retry_at_ms - clock.now_ms() - 1_000
            await looked(broker)
            assert _has_failed(broker, failures - 1)
            clock.ahead_ms += 1_000
            await until(partial(_has_failed, broker, failures))
        damage.mend()
        clock.ahead_ms += HOUR_MS
        await until(lambda: is_compacted(log) and not quarantined(broker))
        runs = broker.cleaner.scheduler.runs
        await until(lambda: runs.last_good(log))  # set once the checkpoint is stored
        last = (await get_json(broker, "/api/cleaner/runs"))["runs"][0]
        assert last["result"]["reason"] == "RETRY"


@on_uvloop
async def test_a_topic_that_is_compacted_no_more_leaves_the_quarantine(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as (broker, one):
        await damaged_log(broker)
        await alter_topic(one, "t", {"cleanup.policy": "delete"})
        await settled(broker)
        assert quarantined(broker) is None


@on_uvloop
async def test_a_topic_created_again_does_not_inherit_the_quarantine(tmp_path: Path) -> None:
    async with cleaning(tmp_path, {"log.cleaner.backoff.ms": "3600000"}) as (broker, _):
        await damaged_log(broker)
        topic = broker.topics.get("t")
        assert topic is not None
        await broker.topics.delete([topic.topic_id])
        await create(broker, "t", configs=dict(topic.overrides))
        await looked(broker)
        assert quarantined(broker) is None
        again = broker.topics.get("t")
        assert again is not None
        (log,) = again.logs
        put(log, numbered(0, 20))
        broker.cleaner.wake()
        await until(lambda: is_compacted(log))


# --- the disk ---------------------------------------------------------------------------------


@on_uvloop
async def test_a_checkpoint_that_the_disk_refuses_costs_no_thread(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    settings = HTTP | {"log.flush.offset.checkpoint.interval.ms": "20"}
    async with cleaning(tmp_path, settings, fs=fs) as (broker, _):
        log = await new_log(broker, "t")
        fs.refuse = lambda kind, path: DISK_FULL if path.name == CLEANER_OFFSETS else None
        put(log, numbered(0, 20))
        await until(lambda: is_compacted(log))
        await settled(broker)
        status = broker.cleaner.status()
        assert (status.threads_died, status.quarantined) == (0, ())
        assert [result.topic for result in status.last_results] == ["t"]
        assert "No space left" in str(broker.problems())
        fs.refuse = lambda kind, path: None
        checkpoint = log.directory.parent / CLEANER_OFFSETS
        wanted = f"t 0 {log.active.base_offset}"
        await until(lambda: checkpoint.exists() and wanted in checkpoint.read_text())
