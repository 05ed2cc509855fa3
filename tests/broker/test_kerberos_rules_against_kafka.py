"""Kerberos principals get the names that Kafka's rules give them (KerberosShortNamer)."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.config.errors import ConfigError
from odradek.config.java_rules import NoRuleApplies
from odradek.config.kerberos_rules import KerberosRules
from tests.support.java import program

pytestmark = pytest.mark.kafka

_CHANCE = random.Random(7)
_REALM = "HERE.COM"
_COMPONENTS = ["alice", "Bob", "kafka", "App.service-name.ToLocal", "", "host.name", "x y"]
_FORMATS = ["$1", "$1@$0", "$2", "$1;$2", "$0-$1", "$1$1", "plain", "", "$1/$2"]
_MATCHES = ["", "(.*)", "(.*@HERE.COM)", "(al.*)", "(App\\..*)", "([A-Z].*)", "(.*;.*)", "(a)"]
_CHANGES = [
    "", "s/@.*//", "s/a/o/", "s/a/o/g", "s/App\\.(.*)/$1/", "s/(.)(.)/$2$1/g", "s/^/x-/",
    "s/;/./g", "s/.*/\\$1/", "s/b*/_/g",
]  # fmt: skip
_ENDS = ["", "/L", "/U", "L", "U", "/"]


def _rule() -> str:
    if _CHANCE.random() < 0.2:
        return "DEFAULT"
    count = _CHANCE.choice(["1", "2", "1", "2", "0", "3"])
    match = _CHANCE.choice(_MATCHES)
    change, end = _CHANCE.choice(_CHANGES), _CHANCE.choice(_ENDS)
    return f"RULE:[{count}:{_CHANCE.choice(_FORMATS)}]{match}{change}{end}"


def _principal() -> str:
    one = _CHANCE.choice(_COMPONENTS)
    if _CHANCE.random() < 0.5:
        one += f"/{_CHANCE.choice(_COMPONENTS)}"
    return one + _CHANCE.choice(["@HERE.COM", "@THERE.COM", "@HERE.COM", "@", ""])


_BAD = [
    "DEFAULT/L", "RULE:", "RULE:[1:$1", "RULE:[x:$1]", "default", "RULE:[1:$1](a))",
    "RULE:[1:$1]s/a",
]  # fmt: skip
CASES = [
    *(("HERE.COM", _principal(), [_rule() for _ in range(_CHANCE.choice([1, 2, 3]))])
      for _ in range(4_000)),
    *((_REALM, "alice@HERE.COM", [bad]) for bad in _BAD),
]  # fmt: skip


def _ours(realm: str, principal: str, rules: Sequence[str]) -> str:
    try:
        namer = KerberosRules(rules)
    except ConfigError:
        return "bad rules"
    try:
        return f"name {namer.apply(principal, realm)}"
    except NoRuleApplies:
        return "no name"


def test_principals_have_the_names_that_kafka_gives_them() -> None:
    cases = [one for one in CASES if one[1].strip()]
    lines = ["\t".join((realm, principal, *rules)) for realm, principal, rules in cases]
    source = Path(__file__).with_name("KerberosOracle.java")
    done = subprocess.run(
        program(source), input="\n".join(lines), text=True, capture_output=True, check=True
    )
    theirs = done.stdout.splitlines()
    differing = [
        (line, their, our)
        for line, their, our in zip(lines, theirs, (_ours(*one) for one in cases), strict=True)
        if their != our
    ]
    assert not differing, differing[:10]
    assert {one.partition(" ")[0] for one in theirs} == {"bad", "name", "no"}
