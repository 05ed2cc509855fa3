"""The partitions of a host whose brokers share its log directories, on both engines."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.catalog import changes
from odradek.broker.catalog.engines import Engine, open_engine
from odradek.broker.catalog.hosts import HostStatements, Placed, rebalance, spread, take_over
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.sessions import open_session, open_sessions
from odradek.broker.metadata.members import NO_LEADER, Leader, Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics.placement import spread_evenly
from odradek.broker.topics.states import Handover
from odradek.config.resolution import Layer, Source
from odradek.config.workers import worker_layer
from odradek.storage.checkpoints import LeftLog
from odradek.storage.real_files import RealFileSystem
from odradek.storage.shared_directory import HostLogDirectory, SharedLogDirectory
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql

T = TypeVar("T")
HOST = "a-host"
CLOSED = LeftLog(100, 7, 50, is_clean=True)
LATER = LeftLog(200, 9, None, is_clean=False)
COUNT = 6


class Catalog:
    """A catalog with a topic, whose partitions two brokers of a host lead in turn."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = open_engine(url)
        self._ids = itertools.count()
        leaders = tuple(Leader(1 + at % 2, 0, HOST, 1 + at % 2) for at in range(COUNT))
        record = TopicRecord("t", bytes(16), COUNT, 1, 0, leaders=leaders)

        def work(connection: Connection) -> None:
            migrate(self.engine, connection)
            HostStatements(connection).create_topics([(record, {})])

        self.engine.transact(work)

    def join(self, *node_ids: int, host: str = HOST) -> None:
        for node_id in node_ids:
            member = Member(node_id, host, None, ())
            self.engine.transact(lambda to, one=member: open_session(to, self.engine, one, 9_000))

    def change(self, work: Callable[[Connection], list[changes.Change]]) -> None:
        self.engine.transact(
            lambda to: changes.note(to, f"change-{next(self._ids)}", work(to))
        )

    def placed(self) -> list[Placed]:
        return self.engine.read(lambda connection: HostStatements(connection).placed(HOST))

    def leaders(self) -> Sequence[Leader]:
        found = self.engine.read(lambda to: HostStatements(to).topics_of([bytes(16)]))
        return found[bytes(16)].leaders

    def left(self) -> Mapping[int, LeftLog]:
        found = self.engine.read(lambda to: HostStatements(to).left_logs([bytes(16)]))
        return {number: one for (_, number), one in found.items()}


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    made = Catalog(catalog_url)
    yield made
    made.engine.close()


def test_others_share_what_an_ended_broker_led(catalog: Catalog) -> None:
    catalog.join(1, 2, 3)
    left = {("t", 1): CLOSED, ("t", 3): LATER}
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 2, left))
    placed = catalog.placed()
    assert {one.leader for one in placed[1::2]} == {3}, "the one that leads the fewest"
    assert [one.epoch for one in placed] == [0, 1] * 3
    assert [one.leader for one in placed[::2]] == [1] * 3, "others stay"
    assert catalog.left()[1] == CLOSED
    assert catalog.left()[3] == LATER
    assert not catalog.left()[5].is_clean, "nothing is known of it"
    sessions = catalog.engine.read(open_sessions)
    assert [one.member.node_id for one in sessions] == [1, 3]


def test_a_move_to_another_host_goes_on_with_another_leader(catalog: Catalog) -> None:
    catalog.join(1, 2, 3)
    catalog.join(9, host="another")
    targets = {(bytes(16), 1): 9, (bytes(16), 3): 3}
    catalog.engine.transact(lambda to: HostStatements(to).set_targets(targets))
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 2, {}))
    moving, placed = catalog.leaders()[1], catalog.leaders()[3]
    assert moving.node_id != 2 and (moving.target, moving.move) == (9, 1)
    assert placed.target == NO_LEADER
    catalog.change(lambda to: rebalance(to, HOST))
    assert catalog.leaders()[1].target == 9


def test_the_last_broker_of_a_host_leaves_its_partitions_for_its_return(catalog: Catalog) -> None:
    catalog.join(2)
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 2, {}))
    assert [(one.leader, one.replica) for one in catalog.placed()[1::2]] == [(NO_LEADER, 2)] * 3


def test_a_note_counts_for_the_next_leader_only(catalog: Catalog) -> None:
    """A log that was closed once and used since is not taken for a closed one."""
    catalog.join(1, 2)
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 2, {("t", 1): CLOSED}))
    assert catalog.left()[1].is_clean
    catalog.join(2)
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 1, {}))
    found = catalog.left()[1]
    assert not found.is_clean
    assert (found.recovery_point, found.log_start_offset, found.cleaner_offset) == (100, 7, 50)


def test_each_broker_gets_its_share_of_what_its_last_user_left(catalog: Catalog) -> None:
    catalog.join(1, 2)
    stale = LeftLog(5_000, 5_000, None, is_clean=True)
    left = {
        1: {("t", 0): CLOSED, ("t", 1): stale},
        2: {("t", 1): LATER},
        None: {("t", 2): CLOSED, ("t", 1): stale},
    }
    catalog.change(lambda to: spread(to, catalog.engine, HOST, [1, 2, 3], left))
    placed = catalog.placed()
    assert Counter(one.replica for one in placed) == {1: 2, 2: 2, 3: 2}
    assert {one.leader for one in placed} == {NO_LEADER}
    assert {one.epoch for one in placed} == {1}
    found = catalog.left()
    assert (found[0], found[2]) == (CLOSED, CLOSED)
    assert found[1] == LATER, "the one that led it last knows"
    assert not catalog.engine.read(open_sessions)


def test_a_broker_that_has_come_back_is_to_get_its_share(catalog: Catalog) -> None:
    catalog.join(1, 2)
    catalog.change(lambda to: take_over(to, catalog.engine, HOST, 2, {}))
    catalog.join(2)
    catalog.change(lambda to: rebalance(to, HOST))
    leaders = catalog.engine.read(lambda to: HostStatements(to).topics())[0].leaders
    assert Counter(one.target for one in leaders) == {NO_LEADER: 3, 2: 3}
    assert {one.node_id for one in leaders} == {1}, "only the leader itself hands over"


def test_partitions_change_hands_only_from_their_leader(catalog: Catalog) -> None:
    catalog.join(1, 2)
    given = {
        (bytes(16), number): (Member(1, HOST, None, ()), Handover(1, CLOSED))
        for number in (0, 1)
    }
    changed = catalog.engine.transact(lambda to: HostStatements(to).hand_over(2, given))
    assert changed == [(bytes(16), 1)]
    assert catalog.left()[1] == CLOSED
    assert [(one.leader, one.epoch) for one in catalog.placed()[:2]] == [(1, 0), (1, 1)]


topics = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(-1, 6)), min_size=1, max_size=40
)


@given(topics, st.integers(1, 5))
def test_partitions_are_spread_evenly_and_stay_where_they_can(
    partitions: list[tuple[str, int]], count: int
) -> None:
    node_ids = list(range(1, count + 1))
    chosen = spread_evenly(partitions, node_ids)
    assert set(chosen) <= set(node_ids)
    of_topic = Counter(
        (topic, node_id) for (topic, _), node_id in zip(partitions, chosen, strict=True)
    )
    for topic, size in Counter(topic for topic, _ in partitions).items():
        shares = [of_topic[topic, node_id] for node_id in node_ids]
        assert max(shares) <= -(-size // count)
    settled = [(topic, one) for (topic, _), one in zip(partitions, chosen, strict=True)]
    again = spread_evenly(settled, node_ids)
    assert sum(one != then for one, then in zip(again, chosen, strict=True)) <= len(
        {topic for topic, _ in partitions}
    ), "an even spread is left alone, but for one partition of a topic"


def test_workers_count_up_from_the_settings_of_the_first() -> None:
    static = Layer(
        Source.STATIC_BROKER,
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:0",
            "advertised.listeners": "PLAINTEXT://a.example:19092",
            "odradek.worker.2.listeners": "PLAINTEXT://127.0.0.1:7000",
            "odradek.worker.2.log.retention.ms": "5",
        },
    )
    first, second, third = (worker_layer(static, one, 10, "") for one in (1, 2, 3))
    assert first.values["listeners"] == static.values["listeners"]
    assert third.values["listeners"] == "PLAINTEXT://127.0.0.1:9094,SSL://[::1]:0"
    assert third.values["advertised.listeners"] == "PLAINTEXT://a.example:19094"
    assert second.values["listeners"] == "PLAINTEXT://127.0.0.1:7000"
    assert [one.values["node.id"] for one in (first, second, third)] == ["10", "11", "12"]
    assert second.values["log.retention.ms"] == "5"
    assert not any(name.startswith("odradek.worker") for name in third.values)


def test_a_directory_is_settled_as_one_broker_leaves_it(tmp_path: Path) -> None:
    fs = RealFileSystem()
    directory = HostLogDirectory(fs, tmp_path, cluster_id="c", node_id=1)
    from odradek.config.effective import resolve_topic

    config = resolve_topic({}, []).config
    for process in (1, 2):
        own = SharedLogDirectory(fs, tmp_path, process)
        own.create_log("t", process, bytes(16), config, now_ms=0)
        own.cleaner_offsets["t", process] = process
        own.close()
    directory.settle(is_clean=True)
    del directory
    later = HostLogDirectory(fs, tmp_path, cluster_id="c", node_id=1)
    assert later.left() == {
        ("t", process): LeftLog(0, 0, process, is_clean=True) for process in (1, 2)
    }
