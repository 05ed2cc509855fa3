"""Jobs that clean shared partitions beside their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.composition import Broker
from odradek.broker.ids import Partition
from odradek.broker.shared import leasing
from odradek.broker.shared.leased import LeasedLog, Leases, Standing, find_shared
from odradek.broker.shared.row_changes import RowChanges
from odradek.broker.shared.snapshot import SharedLogs, open_store, shared_logs
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.cleaning import alter_topic
from tests.broker.leased_jobs import clean_log
from tests.broker.live import client, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import (
    EAGER,
    SMALL,
    delete_records,
    free,
    keyed,
    log_of,
    records,
    stored,
)
from tests.broker.test_shared_topics import (
    close_out,
    cluster,
    leader_of,
    produce,
    served_by_others,
)

# No cleaner of a broker begins by itself.
IDLE = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


def place_of(path: Path, url: str) -> SharedLogs:
    """Return the catalog and the bucket of a cluster."""
    return shared_logs({}, {
        "odradek.catalog.url": url, "odradek.object.store.url": f"file://{path / 'bucket'}"
    })  # fmt: skip


class Job:
    """A job that cleans partition 0 of topic t."""

    def __init__(self, place: SharedLogs) -> None:
        self.place = place
        self.leases = Leases(place)

    async def find(self) -> None:
        """Find the partition."""
        (self.partition,) = await asyncio.to_thread(find_shared, self.place, lambda *_: True)

    async def begin(self) -> LeasedLog:
        """Take the lease, and wait until it is granted."""
        await self.find()
        assert await asyncio.to_thread(self.leases.take, {self.partition}) == set()
        return await self.granted()

    async def granted(self, session: int = -1) -> LeasedLog:
        """Wait until the lease is granted, in another session than the given one."""
        found: LeasedLog | None = None

        async def is_granted() -> bool:
            nonlocal found
            logs = await asyncio.to_thread(self.leases.logs, {self.partition})
            found = logs[0] if logs else None
            return found is not None and found.session != session

        await until(is_granted)
        assert found is not None
        return found

    async def standing(self) -> Standing:
        return await asyncio.to_thread(self.leases.standing)

    async def clean(self, log: LeasedLog) -> None:
        """Carry the cleaning out, and propose its result."""
        store = open_store(self.place.store)
        proposal = await asyncio.to_thread(clean_log, store, log)
        assert await asyncio.to_thread(self.leases.propose, log, proposal)

    async def answer(self) -> str:
        """Wait for the answer of the leader."""
        answers: dict[Partition, str] = {}

        async def is_there() -> bool:
            answers.update((await self.standing()).answers)
            return self.partition in answers

        await until(is_there)
        return answers[self.partition]


async def accepted(by: Job, leader: Broker) -> None:
    """Wait until the proposal is accepted, and readers have the new segments a moment later."""
    assert await by.answer() == ""
    await until(lambda: bool(leader.cleaner.scheduler.runs.runs(log_of(leader))))


@asynccontextmanager
async def job(path: Path, url: str) -> AsyncIterator[Job]:
    """Run a job, which gives its leases back."""
    made = Job(place_of(path, url))
    await asyncio.to_thread(made.leases.__enter__)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.leases.__exit__, None, None, None)


@asynccontextmanager
async def one_and_job(path: Path, url: str) -> AsyncIterator[tuple[Broker, Job]]:
    """Run one broker, and a job."""
    async with cluster(path, url, 1, EAGER) as (one,), job(path, url) as by:
        yield one, by


async def begin(brokers: list[Broker], configs: Mapping[str, str] = IDLE) -> Broker:
    """Create the topic with 60 records of five keys; return its leader."""
    await create(brokers[0], "t", 1, configs)
    await known_everywhere(brokers, "t")
    leader = next(one for one in brokers if leader_of([one]) is one)
    await put(leader, 0, 60)
    await stored(leader)
    return leader


async def put(broker: Broker, first: int, count: int) -> None:
    for at in range(first, first + count):
        await produce(broker, keyed(b"k%d" % (at % 5), b"%d" % at * 20))


@on_uvloop
async def test_a_job_cleans_a_log_beside_its_producers(tmp_path: Path, catalog_url: str) -> None:
    async with one_and_job(tmp_path, catalog_url) as (one, by):
        await begin([one])
        log = await by.begin()
        assert len(log.rows) > 5
        await put(one, 60, 7)
        await by.clean(log)
        await accepted(by, one)
        found = await records(one)
        assert [offset for offset, _, _ in found] == [*range(55, 67)]
        await put(one, 67, 3)
        assert [offset for offset, _, _ in await records(one)] == [*range(55, 70)]
        assert one.partitions.home_of(log_of(one)).cleaner_offsets["t", 0] == 60
        (run,) = one.cleaner.scheduler.runs.runs(log_of(one))
        assert run.result is not None
        assert (run.result.start_records, run.result.end_records) == (60, 5)


@on_uvloop
async def test_an_exchange_whose_answer_was_lost_is_repeated_after_the_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, repeated = RowChanges.commit, asyncio.Event()

    async with one_and_job(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}") as (one, by):

        async def commit_twice(self: RowChanges, work: Any) -> None:
            await commit(self, work)
            if "Leasing._exchange" in work.__qualname__:
                await asyncio.to_thread(by.leases.give_back, {by.partition})
                await commit(self, work)
                repeated.set()

        await begin([one])
        log = await by.begin()
        monkeypatch.setattr(RowChanges, "commit", commit_twice)
        await by.clean(log)
        await repeated.wait()
        await until(lambda: any(row.key.startswith("cleaned/") for row in stored_segments(one)))
        found = await records(one)
        assert [offset for offset, _, _ in found] == [*range(55, 60)]


@on_uvloop
async def test_the_next_leader_has_what_a_job_has_left(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 2, EAGER) as brokers:
        former = await begin(brokers)
        async with job(tmp_path, catalog_url) as by:
            await by.clean(await by.begin())
            await accepted(by, former)
        await stored(former)
        before = await records(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await records(leader) == before
        assert len(before) == 5
        assert leader.partitions.home_of(log_of(leader)).cleaner_offsets["t", 0] == 60
        answer = await produce(leader, keyed(b"k", b"v"))
        assert (answer.error_code, answer.base_offset) == (0, 60)


@on_uvloop
async def test_no_cleaner_of_a_broker_works_on_a_leased_log(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, 1, EAGER) as (one,):
        await begin([one])
        async with job(tmp_path, catalog_url) as by:
            await by.begin()
            outcome = await one.cleaner.ask(log_of(one))
            assert by.leases.job in (outcome.because or "")
            async with job(tmp_path, catalog_url) as other:
                await other.find()
                partitions = {other.partition}
                assert await asyncio.to_thread(other.leases.take, partitions) == partitions
            assert len(await records(one)) == 60
        await until(lambda: one.cleaner.note(log_of(one)).standing.leased_to is None)
        assert (await one.cleaner.ask(log_of(one))).result is not None
        assert len(await records(one)) == 5


@on_uvloop
async def test_a_log_without_work_is_not_leased(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 1, EAGER) as (one,):
        await begin([one])
        for expected in ("", "nothing to clean: it is clean up to its end, offset 60"):
            async with job(tmp_path, catalog_url) as by:
                await by.find()
                await asyncio.to_thread(by.leases.take, {by.partition})
                if not expected:
                    await by.clean(await by.granted())
                assert await by.answer() == expected
        async with client(one) as there:
            await alter_topic(there, "t", {"cleanup.policy": "delete"})
        async with job(tmp_path, catalog_url) as by:
            await by.find()
            await asyncio.to_thread(by.leases.take, {by.partition})
            assert await by.answer() == "cleanup.policy of its topic lacks compact"


@on_uvloop
async def test_records_are_deleted_while_a_job_runs(tmp_path: Path, catalog_url: str) -> None:
    configs = {**IDLE, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
    async with one_and_job(tmp_path, catalog_url) as (one, by):
        await begin([one], configs)
        log = await by.begin()
        assert (await delete_records(one, 30)).low_watermark == 30
        await by.clean(log)
        await accepted(by, one)
        found = [offset for offset, _, _ in await records(one)]
        assert found[-5:] == [*range(55, 60)]
        assert min(found) >= 30
        checkpoint = one.partitions.home_of(log_of(one)).cleaner_offsets["t", 0]
        # All that counts as clean has each key once.
        assert [offset for offset in found if offset < checkpoint] in ([], [*range(55, 60)])
        await nothing_is_left(tmp_path, one, {row.key for row in stored_segments(one)})


@on_uvloop
async def test_a_topic_that_is_no_longer_compacted_refuses_a_proposal(
    tmp_path: Path, catalog_url: str
) -> None:
    async with one_and_job(tmp_path, catalog_url) as (one, by):
        await begin([one])
        log = await by.begin()
        async with client(one) as there:
            await alter_topic(there, "t", {"cleanup.policy": "delete", "retention.ms": "-1"})
        await by.clean(log)
        assert await by.answer() == "cleanup.policy of its topic lacks compact now"
        assert len(await records(one)) == 60
        await nothing_is_left(tmp_path, one)


@on_uvloop
async def test_the_lease_of_a_deleted_topic_is_lost(tmp_path: Path, catalog_url: str) -> None:
    async with one_and_job(tmp_path, catalog_url) as (one, by):
        await begin([one])
        log = await by.begin()
        proposal = await asyncio.to_thread(clean_log, open_store(by.place.store), log)
        await one.topics.delete([log_of(one).topic_id])
        await create(one, "t", 1, IDLE)
        await known_everywhere([one], "t")
        assert not await asyncio.to_thread(by.leases.propose, log, proposal)
        assert (await by.standing()).lost == {by.partition}
        await put(one, 0, 3)
        assert len(await records(one)) == 3
        await nothing_is_left(tmp_path, one)


@on_uvloop
async def test_the_next_leader_grants_a_lease_again(tmp_path: Path, catalog_url: str) -> None:
    async with (
        cluster(tmp_path, catalog_url, 2, EAGER) as brokers,
        job(tmp_path, catalog_url) as by,
    ):
        former = await begin(brokers)
        log = await by.begin()
        proposal = await asyncio.to_thread(clean_log, open_store(by.place.store), log)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        again = await by.granted(log.session)
        assert not await asyncio.to_thread(by.leases.propose, log, proposal)
        await by.clean(again)
        await accepted(by, leader)
        assert len(await records(leader)) == 5


@on_uvloop
async def test_the_lease_of_a_silent_job_ends(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "SILENCE_S", 4.0)
    async with one_and_job(tmp_path, catalog_url) as (one, by):
        await begin([one])
        log = await by.begin()
        by.leases._ended.set()  # it shows no sign of life any more
        proposal = await asyncio.to_thread(clean_log, open_store(by.place.store), log)

        async def is_lost() -> bool:
            return bool((await by.standing()).lost)

        await until(is_lost)
        assert not await asyncio.to_thread(by.leases.propose, log, proposal)
        await until(lambda: one.cleaner.note(log_of(one)).standing.leased_to is None)
        assert (await one.cleaner.ask(log_of(one))).result is not None
        assert len(await records(one)) == 5
        await nothing_is_left(tmp_path, one)


def stored_segments(broker: Broker) -> list[SegmentRow]:
    """Return the rows of the topic's segments."""
    assert broker.sharing is not None
    log = log_of(broker)
    return list(broker.sharing.uploads._tails[log.topic_id, log.partition].rows.values())


async def nothing_is_left(path: Path, broker: Broker, named: Collection[str] = ()) -> None:
    """Wait until the bucket has no object of a job but those that are named."""
    bucket = path / "bucket"

    async def is_gone() -> bool:
        await free(broker)
        there = {str(one.relative_to(bucket)) for one in bucket.rglob("cleaned/*/*/*")}
        return there <= set(named)

    await until(is_gone)
