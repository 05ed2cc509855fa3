"""Our authorizer beside Apache Kafka's own class: the same decisions, and the same audit log.

Sets of ACLs and questions are drawn from so few names, hosts and principals that they meet.
"""

from __future__ import annotations

import json
import logging
import random
import re
import subprocess
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.security import audit
from odradek.broker.security.acls import Acl, AclFilter, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, Requester, ResourceKind
from odradek.broker.security.authorizer import AclAuthorizer
from odradek.broker.security.principals import Principal
from tests.support.java import program

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("AuthorizerOracle.java")
WORLDS, QUESTIONS, FILTERS = 400, 40, 6
SUPER_USERS = ("", "User:root", " User:root ; Group:admins;;User:a:b ")
NAMES = ["a", "ab", "abc", "abcd", "abd", "b", "ba", "*", "*a", "hard", "hardcode",
         "kafka-cluster", "#a", "#ab", "z", "é", "éa", "ab\U0001f600", "ab\uffee", "hello world",
         ]  # fmt: skip
# Nobody is User:* itself, since Kafka cannot decide for such a client.
PRINCIPALS = [("User", "ann"), ("User", "bob"), ("User", "root"), ("Group", "ann"),
              ("Group", "admins"), ("user", "ann"), ("user", "root"), ("Group", "*"),
              ("User", "a:b"), ("User", "")]  # fmt: skip
HOSTS = ["127.0.0.1", "10.0.0.7", "0:0:0:0:0:0:0:1"]
KINDS = [one for one in ResourceKind if one >= ResourceKind.TOPIC]
OPERATIONS = [one for one in AclOperation if one >= AclOperation.ALL]
API_KEYS = [0, 1, 3, 30]


def test_decisions_and_audit_log_are_kafkas(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(7)
    worlds = [_world(chance) for _ in range(WORLDS)]
    caplog.set_level(1, audit.LOGGER)
    decided = failed = allowed = 0
    for world, answers in zip(worlds, _ask_kafka(worlds), strict=True):
        acls = [_acl(one) for one in world["acls"]]
        counts = AuthorizationCounts()
        others = [acl for acl in map(_acl, worlds[0]["acls"]) if acl not in acls]
        ours = AclAuthorizer(
            acls[::2] + others, _super_users(world), counts, allows_by_default=world["default"]
        )
        ours.change(added=acls[1::2])
        ours.change(removed=others)
        assert ours.acls == set(acls)
        for question, answer in zip(world["questions"], answers["questions"], strict=True):
            if "error" in answer:
                # Below "*" Kafka's search leaves its section, and the client gets an unknown
                # error: there is nothing to be like.
                assert "StringIndexOutOfBounds" in answer["error"], answer
                assert question["name"][0] < "*"
                failed += 1
                continue
            for _ in range(2):  # the second time it is remembered
                caplog.clear()
                mine = {"allowed": _ask(ours, question), "logged": _logged(caplog)}
                expected = dict(answer)
                if (question["name"] or "a")[0] < "*":
                    # There it comes by some entries twice, and may name another of them.
                    for one in (mine, expected):
                        one["logged"] = [re.sub("MatchingAcl.*", "", x) for x in one["logged"]]
                assert mine == expected, (question, world["acls"])
            decided += 1
            allowed += answer["allowed"]
        for one, found in zip(world["filters"], answers["filters"], strict=True):
            which = _filter(one)
            assert sorted(str(acl) for acl in acls if which.matches(acl)) == sorted(found), one
    assert failed < decided / 100
    assert 0.2 < allowed / decided < 0.8  # or the draws say little


def _world(chance: random.Random) -> dict[str, Any]:
    names = chance.sample(NAMES, k=chance.randrange(2, 8))
    kinds = chance.sample(KINDS, k=chance.randrange(1, 3))
    operations = chance.sample(OPERATIONS, k=chance.randrange(2, 6)) + [AclOperation.ALL]
    askers = chance.sample(PRINCIPALS, k=3)
    principals = [*askers, ("User", "*")]

    def acl() -> Acl:
        return Acl(
            chance.choice(kinds),
            chance.choice(names),
            chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            ":".join(chance.choice(principals)),
            chance.choice(["*", "*", *HOSTS[:2]]),
            chance.choice(operations),
            chance.choice((Permission.DENY, *[Permission.ALLOW] * 3)),
        )

    def question() -> dict[str, Any]:
        return {
            "principal": chance.choice(askers),
            "host": chance.choice(HOSTS),
            "operation": chance.choice(
                [one for one in operations if one is not AclOperation.ALL]
                + [AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ]
            ),
            "kind": chance.choice(kinds),
            # None asks for any resource of the kind.
            "name": chance.choice([*names, *names, chance.choice(NAMES), None]),
            "references": chance.randrange(3),
            "logsAllowed": chance.random() < 0.7,
            "logsDenied": chance.random() < 0.7,
            "apiKey": chance.choice(API_KEYS),
        }

    def which() -> AclFilter:
        one = acl()
        return AclFilter(
            chance.choice((one.kind, ResourceKind.ANY, ResourceKind.UNKNOWN)),
            chance.choice((one.name, chance.choice(NAMES), None)),
            chance.choice(list(PatternType)),
            chance.choice((one.principal, None, None)),
            chance.choice((one.host, None, None)),
            chance.choice((one.operation, AclOperation.ANY, AclOperation.ANY)),
            chance.choice((one.permission, Permission.ANY)),
        )

    return {
        "super": chance.choice(SUPER_USERS),
        "default": chance.random() < 0.5,
        "acls": [astuple(one) for one in {acl(): None for _ in range(chance.randrange(24))}],
        "questions": [question() for _ in range(QUESTIONS)],
        "filters": [astuple(which()) for _ in range(FILTERS)],
    }


def _ask_kafka(worlds: list[dict[str, Any]]) -> list[Any]:
    done = subprocess.run(
        program(ORACLE),
        input="".join(f"{json.dumps(world)}\n" for world in worlds),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _ask(ours: AclAuthorizer, question: dict[str, Any]) -> bool:
    requester = Requester(
        Principal(*question["principal"]), question["host"], question["apiKey"], 0, "a-client", ""
    )
    operation, kind = AclOperation(question["operation"]), ResourceKind(question["kind"])
    if question["name"] is None:
        return ours.may_any(requester, operation, kind)
    return ours.may(
        requester,
        operation,
        kind,
        question["name"],
        logs_allowed=question["logsAllowed"],
        logs_denied=question["logsDenied"],
        references=question["references"],
    )


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    levels = {5: "TRACE", logging.DEBUG: "DEBUG", logging.INFO: "INFO"}
    return [f"{levels[one.levelno]} {one.getMessage()}" for one in caplog.records]


def _super_users(world: dict[str, Any]) -> frozenset[str]:
    words = (one.strip() for one in world["super"].split(";"))
    return frozenset(one for one in words if one)


def _acl(one: tuple[Any, ...]) -> Acl:
    kind, name, pattern, principal, host, operation, permission = one
    return Acl(
        ResourceKind(kind), name, PatternType(pattern), principal, host,
        AclOperation(operation), Permission(permission),
    )  # fmt: skip


def _filter(one: tuple[Any, ...]) -> AclFilter:
    kind, name, pattern, principal, host, operation, permission = one
    return AclFilter(
        ResourceKind(kind), name, PatternType(pattern), principal, host,
        AclOperation(operation), Permission(permission),
    )  # fmt: skip
