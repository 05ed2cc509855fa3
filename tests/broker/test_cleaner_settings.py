"""What the cleaner is told while the broker runs, by a client and without a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.metadata.store import ResourceType
from odradek.broker.topics import names as topic_names
from odradek.cleaner.rules.job import CleaningJob
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.storage.segment import CLEANED
from tests.broker.cleaning import (
    alter,
    alter_broker,
    alter_topic,
    cleaning,
    is_compacted,
    latest,
    looked,
    new_log,
    numbered,
    put,
    records,
    settled,
)
from tests.broker.live import Client, create, on_uvloop, until
from tests.support.requests import committing

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CleaningJob]]:
    """Every job that a thread has begun."""
    from odradek.cleaner.passes import clean as module

    begun: list[CleaningJob] = []
    really = module.clean

    def noted(job: CleaningJob, **kwargs: object) -> object:
        begun.append(job)
        return really(job, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "clean", noted)
    yield begun


# --- policies ---------------------------------------------------------------------------------


@on_uvloop
async def test_a_topic_goes_through_all_policies(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as (broker, one):
        log = await new_log(broker, "t", {})
        put(log, numbered(0, 20))
        await settled(broker)
        assert len(records(log)) == 20  # delete: young enough, whatever the keys are
        assert log.log_start_offset == 0

        await alter_topic(one, "t", {"cleanup.policy": "compact", "retention.bytes": "0"})
        await until(lambda: is_compacted(log))
        await settled(broker)
        assert log.log_start_offset == 0  # retention has no say

        await alter_topic(one, "t", {"cleanup.policy": "compact,delete"})
        await until(lambda: log.log_start_offset == 20)
        await alter_topic(one, "t", {"retention.bytes": "-1"})
        put(log, numbered(20, 40))
        await until(lambda: is_compacted(log))
        await settled(broker)
        assert latest(log) == {b"k0": b"38", b"k1": b"39"} and len(records(log)) < 20

        await alter_topic(one, "t", {"cleanup.policy": "delete"})
        before = len(records(log))
        put(log, numbered(40, 60))
        await settled(broker)
        assert len(records(log)) == before + 20
        await alter_topic(one, "t", {"retention.bytes": "900"})
        await until(lambda: log.log_start_offset > 20)
        assert records(log)[0].offset == log.log_start_offset

        await alter_topic(one, "t", {"cleanup.policy": "", "retention.bytes": "0"})
        put(log, numbered(60, 80))
        kept = [record.offset for record in records(log)]
        await settled(broker)
        assert [record.offset for record in records(log)] == kept

        await alter_topic(one, "t", {"cleanup.policy": "compact"})
        await until(lambda: is_compacted(log))
        assert latest(log) == {b"k0": b"78", b"k1": b"79"}


@on_uvloop
async def test_the_brokers_policy_changes_for_all_topics_without_their_own(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as (broker, one):
        follower, own = await new_log(broker, "t", {}), await new_log(broker, "own", {})
        await alter_topic(one, "own", {"cleanup.policy": "delete"})
        for log in (follower, own):
            put(log, numbered(0, 20))
        await alter_broker(one, {"log.cleanup.policy": "compact"})
        await until(lambda: is_compacted(follower))
        await settled(broker)
        assert len(records(own)) == 20
        await alter_broker(one, {"log.cleanup.policy": "delete"})
        put(follower, numbered(20, 40))
        await settled(broker)
        assert not is_compacted(follower)
        await alter_broker(one, {"log.cleanup.policy": "compact,delete"})
        await until(lambda: is_compacted(follower))


# --- threads ----------------------------------------------------------------------------------


@on_uvloop
async def test_threads_come_and_go(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as (broker, one):
        for wanted in (3, 1, 4, 2, 0, 1):
            await alter_broker(one, {"log.cleaner.threads": str(wanted)})
            await until(partial(_runs, broker, wanted))
        log = await new_log(broker, "t")
        put(log, numbered(0, 20))
        await until(lambda: is_compacted(log))
        assert broker.problems() == []


def _runs(broker: Broker, thread_count: int) -> bool:
    return broker.cleaner.status().threads_alive == thread_count


@on_uvloop
async def test_no_thread_cleans_nothing_and_drops_what_it_began(tmp_path: Path) -> None:
    async with cleaning(tmp_path, {"log.cleaner.io.max.bytes.per.second": "1"}) as (broker, one):
        log = await new_log(broker, "t")
        put(log, numbered(0, 40))
        await until(lambda: broker.cleaner.status().running)
        await alter_broker(one, {"log.cleaner.threads": "0"})
        await until(lambda: not broker.cleaner.status().threads_alive)
        assert not broker.cleaner.status().running and len(records(log)) == 40
        assert not list(log.directory.glob(f"*{CLEANED}"))
        await alter_broker(
            one, {"log.cleaner.threads": "1", "log.cleaner.io.max.bytes.per.second": "1e9"}
        )
        await until(lambda: is_compacted(log))
        assert broker.problems() == []


# --- what a run may use -----------------------------------------------------------------------


@on_uvloop
async def test_each_run_uses_the_buffers_as_they_are_then(
    tmp_path: Path, jobs: list[CleaningJob]
) -> None:
    async with cleaning(tmp_path) as (broker, one):
        log = await new_log(broker, "t")
        seen = []
        for settings in (
            {},
            {"log.cleaner.dedupe.buffer.size": "4000000"},
            {"log.cleaner.io.buffer.load.factor": "0.5", "log.cleaner.threads": "2"},
            {"log.cleaner.io.buffer.size": "100000000"},
            {"odradek.cleaner.spill.bytes.max": "0", "log.cleaner.verify": "true"},
            {"log.cleaner.dedupe.buffer.size": "134217728", "log.cleaner.threads": "1"},
        ):
            await alter_broker(one, settings)
            jobs.clear()
            end = log.log_end_offset
            put(log, numbered(end, end + 20))
            await until(lambda: jobs and is_compacted(log))
            await settled(broker)
            used = jobs[-1].settings
            seen.append((used.map_bytes_max, used.map_load_factor, used.chunk_bytes))
            assert used.spill_bytes_max == broker.config.odradek_cleaner_spill_bytes_max // (
                broker.config.log_cleaner_threads
            )
            assert used.must_verify == broker.config.log_cleaner_verify
        mib = 1 << 20
        assert seen == [
            (128 * mib, 0.9, mib),
            (4_000_000, 0.9, mib),
            (2_000_000, 0.5, mib),
            (2_000_000, 0.5, 25_000_000),
            (2_000_000, 0.5, 25_000_000),
            (128 * mib, 0.5, 50_000_000),
        ]
        assert broker.problems() == []


@on_uvloop
async def test_a_run_speeds_up_and_slows_down_while_it_goes(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as (broker, one):
        log = await new_log(broker, "t")
        for round_ in range(2):
            await alter_broker(one, {"log.cleaner.io.max.bytes.per.second": "1"})
            put(log, numbered(40 * round_, 40 * round_ + 40))
            await until(lambda: broker.cleaner.status().running)
            await alter_broker(one, {"log.cleaner.io.max.bytes.per.second": "1e9"})
            await until(lambda: is_compacted(log))


@on_uvloop
async def test_a_shorter_rest_counts_at_once(tmp_path: Path) -> None:
    async with cleaning(tmp_path, {"log.cleaner.backoff.ms": "3600000"}) as (broker, one):
        log = await new_log(broker, "t")
        await looked(broker)
        await alter_broker(one, {"log.cleaner.backoff.ms": "0"})
        put(log, numbered(0, 20))
        await until(lambda: is_compacted(log))


# --- what may be cleaned ----------------------------------------------------------------------


@on_uvloop
@pytest.mark.parametrize("of", ["topic", "broker"])
async def test_a_changed_setting_makes_a_young_or_clean_log_cleanable(
    tmp_path: Path, of: str
) -> None:
    names = {
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    }
    async with cleaning(tmp_path) as (broker, one):

        async def change(settings: Mapping[str, str]) -> None:
            if of == "topic":
                await alter_topic(one, "t", settings)
            else:
                await alter_broker(one, {names[key]: value for key, value in settings.items()})

        log = await new_log(broker, "t")
        for key, closed, opened in (
            ("min.compaction.lag.ms", str(HOUR_MS), "0"),
            ("min.cleanable.dirty.ratio", "1", "0"),
        ):
            await change({key: closed})
            end = log.log_end_offset
            put(log, numbered(end, end + 20))
            await settled(broker)
            assert not is_compacted(log)
            await change({key: opened})
            await until(lambda: is_compacted(log))


@on_uvloop
@pytest.mark.parametrize("of", ["topic", "broker"])
async def test_a_lag_that_has_passed_overrules_the_ratio_and_rolls(
    tmp_path: Path, of: str
) -> None:
    settings = {"log.cleaner.min.cleanable.ratio": "1", "log.cleaner.backoff.ms": "3600000"}
    async with cleaning(tmp_path, settings) as (broker, one):
        log = await new_log(broker, "t")
        put(log, numbered(0, 2, keys=1), timestamp=broker.clock.now_ms() - HOUR_MS)
        await looked(broker)
        assert len(log.segments) == 1
        if of == "topic":
            await alter_topic(one, "t", {"max.compaction.lag.ms": str(HOUR_MS)})
        else:
            await alter_broker(one, {"log.cleaner.max.compaction.lag.ms": str(HOUR_MS)})
        await until(lambda: [record.offset for record in records(log)] == [1])


@on_uvloop
@pytest.mark.parametrize("of", ["topic", "broker"])
async def test_tombstones_live_as_long_as_the_setting_of_their_first_cleaning(
    tmp_path: Path, of: str
) -> None:
    async with cleaning(tmp_path, {"log.cleaner.delete.retention.ms": str(HOUR_MS)}) as (
        broker,
        one,
    ):
        log = await new_log(broker, "t")

        async def clean(tombstone: str) -> None:
            put(log, f"{tombstone}:1 {tombstone}:-")
            for filler in range(3):  # cleaned once and then again
                put(log, numbered(10 * filler, 10 * filler + 10))
                await until(lambda: is_compacted(log))
                await settled(broker)

        await clean("long")
        assert latest(log)[b"long"] is None
        if of == "topic":
            await alter_topic(one, "t", {"delete.retention.ms": "0"})
        else:
            await alter_broker(one, {"log.cleaner.delete.retention.ms": "0"})
        await clean("short")
        assert b"short" not in latest(log) and latest(log)[b"long"] is None


@on_uvloop
async def test_the_cleaner_is_switched_off_by_the_files_alone(tmp_path: Path) -> None:
    async with cleaning(tmp_path, {"log.cleaner.enable": "false"}) as (broker, one):
        log = await new_log(broker, "t")
        put(log, numbered(0, 20))
        for name in ("", str(broker.node_id)):
            code = await alter(one, ResourceType.BROKER, name, {"log.cleaner.enable": "true"})
            assert code == ErrorCode.INVALID_REQUEST
        await alter_broker(one, {"log.cleaner.threads": "2"})
        await broker.cleaner.deleter.check_all()
        assert not is_compacted(log) and broker.cleaner.status().threads_alive == 0
    async with cleaning(tmp_path) as (broker, _):
        topic = broker.topics.get("t")
        assert topic is not None
        (again,) = topic.logs
        await until(lambda: is_compacted(again))


# --- the broker's own topics ------------------------------------------------------------------


async def committed(one: Client, groups: list[str]) -> list[int]:
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked = [OffsetFetchRequestGroup(group_id=group, topics=[wanted]) for group in groups]
    request = OffsetFetchRequest(groups=asked, require_stable=False)

    async def loaded() -> OffsetFetchResponse | None:
        response = await one.ask(request, version=8)
        return None if any(group.error_code for group in response.groups) else response

    response = await until(loaded, "the groups are loaded")
    return [g.topics[0].partitions[0].committed_offset for g in response.groups]


@on_uvloop
async def test_committed_offsets_are_cleaned_like_any_topic(tmp_path: Path) -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "2000",
        "log.flush.acks.all": "false",
    }
    groups = [f"group-{number}" for number in range(5)]
    async with cleaning(tmp_path, settings) as (broker, one):
        await create(broker, "t")
        for offset in range(100):
            for group in groups:
                response = await one.ask(committing(group, {"t": {0: offset}}), version=8)
                assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
        assert topic is not None
        (log,) = topic.logs
        await until(lambda: is_compacted(log))
        assert log.log_end_offset >= 500 and len(records(log)) < 100
        assert log.log_start_offset == 0
        assert await committed(one, groups) == [99] * 5
        assert broker.problems() == []
    async with cleaning(tmp_path, settings) as (broker, one):
        assert await committed(one, groups) == [99] * 5


@on_uvloop
async def test_transaction_state_is_cleaned_like_any_topic(tmp_path: Path) -> None:
    settings = {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.segment.bytes": "2000",
    }
    async with cleaning(tmp_path, settings) as (broker, _):
        topic = await broker.topics.internal(topic_names.TRANSACTION_STATE)
        assert topic.config.compact
        (log,) = topic.logs
        put(log, numbered(0, 500, keys=5))
        await until(lambda: is_compacted(log))
        assert len(records(log)) < 100
        assert latest(log) == {b"k%d" % key: b"%d" % (495 + key) for key in range(5)}
