"""Every request of the table by every principal, to Odradek and to Kafka with its authorizer.

A principal has one right alone, or exactly those that some rule takes, or none, or all. Who has
what a rule takes is served and nobody else is, by both; and both answer alike.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess
from odradek.broker.api_table import APIS
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.errors import ErrorCode
from tests.authorization.cases import (
    CASES,
    codes,
    is_refused,
    request_of,
    rule_version,
    versions_of,
)
from tests.authorization.clients import Client, hosts
from tests.authorization.differences import KNOWN, known
from tests.authorization.rules import FREE, RULES, Rights, Rule, parse_rights
from tests.authorization.world import (
    ALL,
    LITERAL,
    MAY,
    NOT,
    World,
    creation,
    message,
    principals,
)
from tests.differential.answers import Difference, Pairs
from tests.differential.differences import Known
from tests.differential.world import SETTINGS
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

APPLICABLE = [rule for rule in RULES if rule.api in {api.name for api in APIS}]
_SHOWN_MAX = 40
# Ids are no secret, and a producer id may be had for any topic.
_NOT_BY_NAME = ("by id", "without a transaction", "by a follower", "by a broker")
# After it lists of topics are compared.
_CREATING = "Metadata of a topic that it creates"
_AUTHORIZED = {
    **SETTINGS,
    "auto.create.topics.enable": "true",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    # Members say nothing after they have joined, and are listed at the end.
    **{
        f"group.{kind}.{limit}session.timeout.ms": "600000"
        for kind in ("consumer", "share")
        for limit in ("max.", "")
    },
}


def test_every_api_asks_or_is_known_to_be_free() -> None:
    ruled = {rule.api for rule in RULES}
    assert {api.name for api in APIS} <= ruled | FREE.keys()
    assert {rule.name for rule in RULES} == CASES.keys()


class Sides:
    """Both brokers, the same principals at both, and what differs."""

    def __init__(self, ours: World, theirs: World) -> None:
        self.worlds = ours, theirs
        self.pairs = Pairs(ours.port, theirs.port)
        self.principals: Mapping[str, Rights] = dict(
            zip(hosts(len(principals())), principals(), strict=False)
        )
        self.clients = {
            host: (Client(ours.port, host), Client(theirs.port, host)) for host in self.principals
        }
        self.seen: set[Known] = set()

    def set_up(self) -> None:
        """Have the same on both."""
        for world in self.worlds:
            world.set_up(self.principals)
        self._pair()
        self.pairs.pair(*(world.log_directory() for world in self.worlds))

    def freshen(self, prefixes: tuple[str, ...]) -> None:
        """Create the topics that requests may delete."""
        count = len(self.principals)
        wanted = [f"{prefix}fresh-{number}" for prefix in prefixes for number in range(count)]
        for world in self.worlds:
            left = world.existing(wanted)
            world.create_topics([name for name in wanted if name not in left])
        self._pair()

    def settle(self) -> None:
        """Wait until both know of what was created while they were asked."""
        ours, theirs = self.worlds
        wanted = [ours.names(MAY, number).new_topic for number in range(len(self.principals))]
        wait_until(lambda: theirs.existing(wanted) == ours.existing(wanted))

    def ask(
        self, rule: Rule, host: str, prefix: str, number: int, version: int | None = None
    ) -> tuple[Any, Any]:
        """Ask both; return the answers."""
        answers = []
        for world, client in zip(self.worlds, self.clients[host], strict=True):
            request, at = request_of(rule, world.names(prefix, number), version)
            answers.append(client.ask(request, at))
        return answers[0], answers[1]

    def differences(self, rule: Rule, ours: Any, theirs: Any) -> Iterator[Difference]:
        """Yield what is new of the differences between two answers."""
        for one in self.pairs.between(rule.api, rule_version(rule), ours, theirs):
            explained = known(one)
            if explained is None:
                yield one
            else:
                self.seen.add(explained)

    def _pair(self) -> None:
        ours, theirs = self.worlds
        for name, topic_id in ours.topic_ids.items():
            self.pairs.pair(topic_id, theirs.topic_ids[name])


@contextlib.contextmanager
def both(folder: Path) -> Iterator[Sides]:
    """Start both brokers, and have the same on them."""
    ours = ForkedOdradek(folder / "odradek", _AUTHORIZED)
    theirs = KafkaProcess(folder / "kafka", _AUTHORIZED)
    with contextlib.ExitStack() as stack:
        for broker in (ours, theirs):
            broker.start()
            stack.callback(broker.kill)
        sides = Sides(World(ours.port), World(theirs.port))
        for world in sides.worlds:
            stack.callback(world.close)
        for pair in sides.clients.values():
            for client in pair:
                stack.callback(client.close)
        sides.set_up()
        yield sides


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_both_brokers_serve_and_refuse_the_same_clients(tmp_path: Path) -> None:
    found: dict[str, str] = {}  # the difference, and the first client that has met it
    with both(tmp_path) as sides:
        for rule in APPLICABLE:
            if CASES[rule.name].takes_fresh_topic:
                sides.freshen((MAY,))
            for number, (host, rights) in enumerate(sides.principals.items()):
                for what in _found(sides, rule, host, rights, number):
                    found.setdefault(f"{rule.name}: {what}", _words(rights))
            if rule.name == _CREATING:
                sides.settle()
        for scene in (
            _answers_about_missing,
            _at_every_version,
            _matched_by_expression,
            _rights_come_and_go,
        ):
            found |= dict.fromkeys(scene(sides), scene.__name__)
    lines = [f"{what} ({who})" for what, who in found.items()]
    assert not lines, f"{len(lines)} differences:\n" + "\n".join(lines[:_SHOWN_MAX])
    gone = [one for one in KNOWN if one not in sides.seen]
    assert not gone, f"differences that are no more: take them off the list: {gone}"


def _found(
    sides: Sides, rule: Rule, host: str, rights: Rights, number: int
) -> Iterator[str]:
    answers = sides.ask(rule, host, MAY, number)
    for side, answer, world in zip(("we", "Kafka"), answers, sides.worlds, strict=True):
        names = world.names(MAY, number)
        served = answer is not None and not is_refused(rule, answer, names)
        if served != rule.is_met(rights):
            yield f"{side} {'serve' if served else 'refuse'}: {answer}"
    for one in sides.differences(rule, *answers):
        yield str(one)


def _answers_about_missing(sides: Sides) -> Iterator[str]:
    """Ask for what nobody may know of, there or not, and compare the answers."""
    everything_named = frozenset(one for one in ALL if one[1] is not ResourceKind.CLUSTER)
    (host,) = (one for one, rights in sides.principals.items() if rights == everything_named)
    number = len(sides.principals)
    for rule in APPLICABLE:
        is_clusters = all(kind is ResourceKind.CLUSTER for way in rule.ways for _, kind in way)
        if is_clusters or CASES[rule.name].shows is not None or rule.what in _NOT_BY_NAME:
            continue
        shown = []
        for prefix in (NOT, "absent-"):
            answers = sides.ask(rule, host, prefix, number)
            if not is_refused(rule, answers[0], sides.worlds[0].names(prefix, number)):
                yield f"{rule.name} of {prefix} is served: {answers[0]}"
            shown.append(_plain(answers[0]).replace(prefix, ""))
            for one in sides.differences(rule, *answers):
                yield f"{rule.name} of {prefix}: {one}"
        if shown[0] != shown[1]:
            yield f"{rule.name} tells what is there: {shown}"


def _at_every_version(sides: Sides) -> Iterator[str]:
    """Ask in the older versions, too, for what is denied: by who has no right, and all but one."""
    everything = [host for host, rights in sides.principals.items() if rights == ALL]
    nobody = [host for host, rights in sides.principals.items() if not rights]
    number = len(sides.principals) + 1
    for rule in APPLICABLE:
        for host in (*nobody, *everything):
            prefix = MAY if host in nobody else NOT
            for version in versions_of(rule, sides.worlds[0].names(prefix, number)):
                answers = sides.ask(rule, host, prefix, number, version)
                for one in sides.differences(rule, *answers):
                    yield f"{rule.name} v{version} of {prefix}: {one}"


def _matched_by_expression(sides: Sides) -> Iterator[str]:
    """Have a member subscribe to an expression that matches more than it may describe."""
    rights = parse_rights("READ GROUP + DESCRIBE TOPIC")
    (host,) = (one for one, its in sides.principals.items() if its == rights)
    for world, client in zip(sides.worlds, sides.clients[host], strict=True):
        wanted = {world.names(MAY).topic_id}
        found = world.join_by_expression(client, f"{MAY}expression", ".*-topic")
        if found != wanted:
            yield f"by an expression {world.port} assigns {found} instead of {wanted}"


def _rights_come_and_go(sides: Sides) -> Iterator[str]:
    """Take a right from a consumer in the middle of its fetch session, and give it back."""
    host = "127.2.0.1"
    topic = f"{MAY}topic"
    clients = [Client(world.port, host) for world in sides.worlds]
    sessions = [0, 0]
    for epoch in range(6):
        for world in sides.worlds:
            if epoch in (0, 4):
                right = creation(host, AclOperation.READ, ResourceKind.TOPIC, topic, LITERAL)
                world.create_acls([right])
            elif epoch == 2:
                world.delete_acls(host)
        wanted = {"partition": 0, "partition_max_bytes": 100, "fetch_offset": 1}
        topics = [] if epoch else [{"topic": topic, "partitions": [wanted]}]
        answers = []
        for side, client in enumerate(clients):
            session = {"session_id": sessions[side], "session_epoch": epoch}
            asking = message("Fetch", 12, max_bytes=100, topics=topics, **session)
            answers.append(client.ask(asking, 12))
            sessions[side] = answers[-1].session_id
        is_denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(answers[0])
        if is_denied != (epoch in (2, 3)):
            yield f"fetch {epoch} of a session: {answers[0]}"
        for one in sides.pairs.between("Fetch", 12, *answers):
            yield f"fetch {epoch} of a session: {one}"
    for client in clients:
        client.close()


def _plain(answer: Any) -> str:
    return re.sub("<memory at 0x[0-9a-f]+>", "records", str(answer))


def _words(rights: Rights) -> str:
    if len(rights) > 6:
        return "somebody with all rights"
    pairs = [f"{operation.name} {kind.name}" for operation, kind in sorted(rights)]
    return " + ".join(pairs) or "nobody"
