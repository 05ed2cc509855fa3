"""Share groups beside Apache Kafka: the same script for both, the same answers and records.

A script is made from a seed: members of a share group fetch, acknowledge all, parts and what they
do not have, break the rules of sessions, while records are appended and deleted. Requests follow
each other; what a member has acquired from Odradek says what it acknowledges to both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.kafka_peer import both_brokers
from tests.broker.share_peers import Member, ShareBroker
from tests.support.waiting import last_answer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

SETTINGS = {
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
STEPS = 120
FIRST_WAIT_MS = 60_000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
RECORD_LIMIT = 1
Partition = tuple[str, int]


@dataclass
class Pair:
    """Both brokers, and a member of each by one name."""

    brokers: tuple[ShareBroker, ShareBroker]
    members: dict[str, tuple[Member, Member]] = field(default_factory=dict)

    def both(self, act: Callable[[ShareBroker], Any]) -> None:
        """Do something on both."""
        for broker in self.brokers:
            act(broker)

    def settled(self, ask: Callable[[ShareBroker], Any]) -> tuple[Any, Any]:
        """Ask both until they say the same: what nobody waits for comes a little later."""
        ours, theirs = last_answer(
            lambda: tuple(map(ask, self.brokers)), lambda both: both[0] == both[1]
        )
        return ours, theirs

    def member(self, group_id: str, name: str) -> tuple[Member, Member]:
        """Return the member of a name."""
        if name not in self.members:
            ours, theirs = (broker.member(group_id, name) for broker in self.brokers)
            self.members[name] = ours, theirs
        return self.members[name]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("shares"), SETTINGS) as (ours, theirs):
        yield ours.port, theirs.port


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    pair = Pair((ShareBroker(ports[0]), ShareBroker(ports[1])))
    yield pair
    pair.both(lambda broker: broker.close())


@dataclass
class Script:
    """What is done with one group, from a seed."""

    pair: Pair
    random: random.Random
    group_id: str
    topic: str
    partitions: int
    held: dict[tuple[str, Partition], list[tuple[int, int]]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    # Where batches of each partition begin, and the partition ends.
    borders: dict[int, list[int]] = field(default_factory=dict)
    # The offsets that a member has acquired and not given back.
    owned: dict[tuple[str, Partition], set[int]] = field(default_factory=dict)
    # Partitions of which records have been deleted.
    shortened: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Make the topic, the group's settings, and the state of its partitions."""
        settings = {"share__record__lock__duration__ms": "60000"}
        if self.random.random() < 0.7:
            limit = self.random.choice((2, 3, 5, 8))
            settings["share__delivery__count__limit"] = str(limit)
        if self.random.random() < 0.3:
            settings["share__partition__max__record__locks"] = "100"
        self.pair.both(lambda broker: broker.create(self.topic, self.partitions))
        self.pair.both(lambda broker: broker.set_group(self.group_id, **settings))
        for number in range(self.partitions):
            self.pair.both(lambda b, n=number: b.initialize(self.group_id, self.topic, n, 0))  # type: ignore[misc]
            self._append(3, number)
        # The partitions are loaded by the first who asks.
        everything = [(self.topic, number) for number in range(self.partitions)]
        for member in self.pair.member(self.group_id, "a"):
            for one in everything:
                member.fetch(one, epoch=0, max_wait_ms=FIRST_WAIT_MS, min_bytes=1)
                member.acknowledge({one: [(0, 2, [RELEASE])]})
                member.fetch(epoch=-1)
        self._compare_states()

    def step(self) -> None:
        """Do one thing."""
        steps: dict[Callable[[], None], int] = {
            self._produce: 12,
            self._fetch: 40,
            self._acknowledge: 40,
            self._leave: 3,
            self._delete_records: 2,
            self._compare_states: 6,
        }
        (step,) = self.random.choices(list(steps), list(steps.values()))
        step()

    def end(self) -> None:
        """Let all members go, and compare what is left."""
        # A member cannot give back records from before the start: they are released after the
        # answer to its leaving, and only then can the start move on. When another member gives
        # back records meanwhile, both brokers store their state with either start.
        names = list(self.pair.members)
        for name in names:
            self._give_back(name)
        for name in names:
            self._let_go(name)
        self._compare_states()

    # --- what is done ---------------------------------------------------------------------

    def _produce(self) -> None:
        self._append(self.random.randint(1, 7), self._number())

    def _append(self, count: int, number: int) -> None:
        borders = self.borders.setdefault(number, [0])
        borders.append(borders[-1] + count)
        self.pair.both(lambda broker: broker.produce(self.topic, count, number))

    def _fetch(self) -> None:
        name = self._name()
        version = self.random.choice((1, 2, 2))
        options: dict[str, Any] = {
            # Which partition gets the records that are left is a matter of ids with Kafka.
            "max_records": self.random.choice((1, 2, 5, 10)) if self.partitions == 1 else 500,
            "batch_size": self.random.choice((1, 3, 10, 100)),
        }
        if version == 2:
            options["share_acquire_mode"] = self.random.choice((0, RECORD_LIMIT))
        epoch = None if self.random.random() < 0.95 else self.random.choice((0, 1, 7))
        partitions = [(self.topic, self._number())] if self.random.random() < 0.5 else []
        forget = [(self.topic, self._number())] if self.random.random() < 0.05 else []
        given = {}
        is_first = epoch == 0 or not self.pair.member(self.group_id, name)[0].epoch
        if self.random.random() < 0.3 and (not is_first or self.random.random() < 0.1):
            given = self._given(name, may_renew=False)
        # Acknowledgements are stored while the fetch reads, by threads of Kafka's that race: what
        # is released may be acquired again at once, and a log's new start be found before or
        # after. Such a fetch reads other partitions only.
        forget += [one for one in given if self._races(one, given[one]) and one not in forget]
        partitions = [one for one in partitions if one not in forget]
        what = f"{name} fetches v{version} {partitions} {options} {given} -{forget} @{epoch}"
        answer = self._same(
            name,
            what,
            lambda member: member.fetch(
                *partitions, given=given, forget=forget, epoch=epoch, version=version, **options
            ),
        )
        for one, part in answer["partitions"].items():
            ranges = [(first, last) for first, last, _ in part["acquired"]]
            self.held.setdefault((name, one), []).extend(ranges)
            if part["acknowledged"][0] == 0:
                self._settle(name, one, given.get(one, ()))
            for first, last in ranges:
                self.owned.setdefault((name, one), set()).update(range(first, last + 1))

    def _acknowledge(self) -> None:
        name = self._name()
        version = self.random.choice((1, 2, 2))
        is_renew_ack = version == 2 and self.random.random() < 0.2
        given = self._given(name, may_renew=is_renew_ack)
        epoch = None if self.random.random() < 0.95 else self.random.choice((0, 1, 7))
        answer = self._same(
            name,
            f"{name} acknowledges v{version} {given} renew={is_renew_ack} @{epoch}",
            lambda member: member.acknowledge(
                given, version=version, is_renew_ack=is_renew_ack, epoch=epoch
            ),
        )
        for one, (error, _) in answer["partitions"].items():
            if error == 0:
                self._settle(name, one, given[one])

    def _leave(self) -> None:
        # Kafka answers before it has released what a member leaves with: it gives all back first.
        name = self._name()
        self._give_back(name)
        self._let_go(name)
        self._compare_states()

    def _give_back(self, name: str) -> None:
        given = self._rest(name)
        if given:
            self._same(name, f"{name} gives back {given}", lambda one: one.acknowledge(given))

    def _let_go(self, name: str) -> None:
        self._same(name, f"{name} leaves", lambda one: one.acknowledge({}, epoch=-1))
        for number in range(self.partitions):
            self.owned.pop((name, (self.topic, number)), None)

    def _rest(self, name: str) -> dict[Partition, list[tuple[int, int, Any]]]:
        """Return how a member gives back all that it has."""
        rest: dict[Partition, list[tuple[int, int, Any]]] = {}
        for number in range(self.partitions):
            one = self.topic, number
            offsets = sorted(self.owned.get((name, one), ()))
            if offsets:
                rest[one] = [(offset, offset, [RELEASE]) for offset in offsets]
        return rest

    def _settle(
        self, name: str, one: Partition, given: Sequence[tuple[int, int, Any]]
    ) -> None:
        """Note that acknowledgements have been taken."""
        owned = self.owned.setdefault((name, one), set())
        for first, last, types in given:
            kinds = list(types) * (last - first + 1) if len(types) == 1 else list(types)
            done = zip(range(first, last + 1), kinds, strict=True)
            owned.difference_update(offset for offset, kind in done if kind != RENEW)

    def _races(self, one: Partition, given: Sequence[tuple[int, int, Any]]) -> bool:
        _, number = one
        return number in self.shortened or any(RELEASE in types for _, _, types in given)

    def _delete_records(self) -> None:
        number, limit = self._number(), self.random.randint(0, 30)
        # Within a batch they differ: test_a_batch_on_both_sides_of_the_log_start, below.
        offset = max(border for border in self.borders[number] if border <= limit)
        self.shortened.add(number)
        self.told.append(f"delete records of {number} before {offset}")
        self.pair.both(lambda broker: delete_records(broker, self.topic, number, offset))

    def _compare_states(self) -> None:
        for number in range(self.partitions):
            ours, theirs = self.pair.settled(
                lambda broker, number=number: broker.state(self.group_id, self.topic, number)  # type: ignore[misc]
            )
            assert ours == theirs, "\n".join(self.told[-25:])

    # --- by chance ------------------------------------------------------------------------

    def _name(self) -> str:
        return self.random.choice("abc")

    def _number(self) -> int:
        return self.random.randrange(self.partitions)

    def _given(self, name: str, *, may_renew: bool) -> dict[Partition, list[tuple[int, int, Any]]]:
        given: dict[Partition, list[tuple[int, int, Any]]] = {}
        for number in range(self.partitions):
            one = self.topic, number
            held = self.held.get((name, one), [])
            chosen = sorted(held)[: self.random.randint(1, 3)]
            batches, after = [], 0
            for first, last in chosen:
                if first < after:
                    continue
                if self.random.random() < 0.3 and first < last:
                    last = self.random.randint(first, last)
                elif self.random.random() < 0.1:
                    last += self.random.randint(1, 4)
                after = last + 1
                batches.append((first, last, self._types(last - first + 1, may_renew=may_renew)))
            if self.random.random() < 0.9:
                self.held[name, one] = [each for each in held if each not in chosen]
            if batches:
                given[one] = batches
        return given

    def _types(self, count: int, *, may_renew: bool) -> list[int]:
        kinds = [0, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, REJECT]
        if may_renew:
            kinds += [RENEW, RENEW]
        if self.random.random() < 0.6:
            return [self.random.choice(kinds)]
        if self.random.random() < 0.05:
            count += 1
        return [self.random.choice(kinds) for _ in range(count)]

    def _same(self, name: str, what: str, act: Callable[[Member], dict[str, Any]]) -> Any:
        self.told.append(what)
        ours, theirs = map(act, self.pair.member(self.group_id, name))
        assert ours == theirs, "\n".join(self.told[-25:])
        return ours


def delete_records(broker: ShareBroker, topic: str, number: int, offset: int) -> None:
    """Move the start of a partition's log."""
    partition = DeleteRecordsPartition(partition_index=number, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000
    )
    broker.peer.ask(request, 2)


@pytest.mark.parametrize("seed", [*range(8), 18, 53])
def test_members_get_the_same(pair: Pair, seed: int) -> None:
    script = Script(pair, random.Random(seed), f"group-{seed}", f"topic-{seed}", 1 + seed % 2)
    script.begin()
    for _ in range(STEPS):
        script.step()
    script.end()


def test_a_member_that_leaves_releases_its_records(pair: Pair) -> None:
    group, one = "left", ("left", 0)
    for broker in pair.brokers:
        broker.create("left")
        broker.initialize(group, "left")
        broker.produce("left", 3)
        leaving, staying = broker.member(group, "a"), broker.member(group, "b")
        leaving.fetch(one, epoch=0, max_wait_ms=FIRST_WAIT_MS, min_bytes=1)
        leaving.acknowledge({}, epoch=-1)
        # It is released after the answer: a fetch that waits gets it.
        told = staying.fetch(one, epoch=0, max_wait_ms=FIRST_WAIT_MS, min_bytes=1)
        assert told["partitions"][one]["acquired"] == [(0, 2, 2)]


def test_a_batch_on_both_sides_of_the_log_start(pair: Pair) -> None:
    """Of such a batch Kafka hands out records that are gone, when older ones are in flight.

    They can be released, but not read again, and keep all after them from being delivered.
    """
    group, one = "astride", ("astride", 0)
    last = {}
    for broker in pair.brokers:
        broker.create("astride")
        broker.initialize(group, "astride")
        broker.produce("astride", 3)
        member = broker.member(group, "a")
        member.fetch(one, epoch=0, max_wait_ms=FIRST_WAIT_MS, min_bytes=1)
        member.acknowledge({one: [(0, 2, [RELEASE])]})
        broker.produce("astride", 6)
        delete_records(broker, "astride", 0, 5)
        # The first fetch finds out where the log begins.
        told = [member.fetch(one)["partitions"].get(one, {}).get("acquired") for _ in range(2)]
        assert not told[0]
        last[broker] = told[1]
        if broker is pair.brokers[0]:
            member.acknowledge({one: [(5, 8, [RELEASE])]})
            assert member.fetch(one)["partitions"][one]["acquired"] == [(5, 8, 2)]
    assert list(last.values()) == [[(5, 8, 1)], [(3, 8, 1)]]
