"""Principals of certificates have the names that Java and Kafka's SslPrincipalMapper give them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.tls.names import rfc2253_name
from odradek.config.errors import ConfigError
from odradek.config.java_rules import NoRuleApplies
from odradek.config.principal_rules import PrincipalRules
from tests.support.java import program

pytestmark = pytest.mark.kafka

_PROGRAM = Path(__file__).with_name("PrincipalOracle.java")
_CHANCE = random.Random(10)

# --- names ------------------------------------------------------------------------------------

_TYPES = [
    "550403", "550406", "550407", "550408", "550409", "55040a", "55040b",  # CN C L ST STREET O OU
    "0992268993f22c640119", "0992268993f22c640101",  # DC, UID
    "550405", "55040c", "55042a", "2a864886f70d010901", "55042e", "2b0601040182371402", "2a03",
    "550429", "883703",
]  # fmt: skip
_ASCII = [*"abzAZ09 '()+,-./:=?", "  ", "\\", '"', "#", "<", ">", ";", "\r", "@", "_", "*", "\0"]
_WIDE = [*_ASCII, "é", "ß", "Ж", "中", "\u00a0", "\u2028", "\U0001d49c", "\n", "\t"]
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be",
              0x14: "utf-8", 0x1C: "utf-32-be"}  # fmt: skip
_PRINTABLE = [*"abzAZ09 '()+,-./:=?", "  "]


def encoded(tag: int, content: bytes) -> bytes:
    """Encode an element of DER."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _attribute(kind: str) -> bytes:
    tag = _CHANCE.choice([0x0C, 0x0C, 0x0C, 0x13, 0x16, 0x1E, 0x1B, 0x14, 0x1C])
    alphabet = {0x0C: _WIDE, 0x1E: [c for c in _WIDE if c != "\U0001d49c"], 0x13: _PRINTABLE,
                0x14: _WIDE, 0x1C: _WIDE}  # fmt: skip
    letters = alphabet.get(tag, _ASCII)
    text = "".join(_CHANCE.choices(letters, k=_CHANCE.choice([0, 1, 1, 2, 3, 5, 8, 60])))
    value = encoded(tag, text.encode(_ENCODINGS[tag]))
    return encoded(0x30, encoded(0x06, bytes.fromhex(kind)) + value)


def _name() -> bytes:
    rdns = []
    for _ in range(_CHANCE.randrange(1, 5)):
        kinds = _CHANCE.sample(_TYPES, _CHANCE.choice([1, 1, 1, 1, 2, 3]))
        rdns.append(encoded(0x31, b"".join(map(_attribute, kinds))))
    return encoded(0x30, b"".join(rdns))


NAMES = [encoded(0x30, b""), *(_name() for _ in range(3000))]

# --- rules ------------------------------------------------------------------------------------

_DNS = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=JQUser,cn=All,cn=Users,dc=ORG",
    "OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Steve Kille+UID=x,O=Isode Limited,C=GB",
    "CN=a\\,b,OU=c/d",
    "CN=Жанна,O=ÜBER",
    "CN=a\u2028b,O=c\rd",
    "CN=line\n",
    "",
]
_RULES = [
    "DEFAULT", "", "  ", " DEFAULT , DEFAULT", ",", "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U,DEFAULT",
    "RULE:^CN=(.*?), *OU=(.*?),.*$/$1@$2/L , RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^cn=(.*?),cn=(.*?),dc=(.*?)$/$1@$2/U", "RULE:.*/$0/", "RULE:.*/x/", "RULE:(.*)/[$1]/",
    "RULE:(CN)(=)(.).*/$3$2$1$4$10$33/", "RULE:(?i)cn=([^,]*).*/$1/L", "RULE:^CN=(.*)$/\\$1/",
    "RULE:^CN=(.*)$/a\\/$1/", "RULE:^CN=(a\\\\,b).*$/$1/", "RULE:^CN=(?<who>[^,]+).*$/${who}/L",
    "RULE:(o=)?(.*)/$1-$2/", "RULE:^CN=(.*?)/$1/", "RULE:CN/x/,RULE:^CN=.*/two/U", "RULE:(a|)*/x/",
    "RULE:^CN=([^,]*),.*$/$1 $1/U", "RULE:([^=,]+)=([^,]*),?.*/$2.$1.$12/L", "RULE:()/x/",
    "RULE:^CN=(.*?)/$1/,DEFAULT,RULE:x/y/", "RULE:^(CN|OU)=(\\w+).*/$2#$01#$00/", "DEFAULTS",
    "default", "DEFAULT/L", "DEFAULT,RULE:^CN=(.*?)", "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU", "rule:^CN=(.*?)/$1/", "RULE:(.*/$1/",
    "RULE:^CN=((?!duke).)*$/other/,DEFAULT", "RULE:^[CN=]++(.*)$/$1/",
    "RULE:^.*?OU=([^,]*).*\\z/$1/", "RULE:(?s)^CN=(.*)$/$1/", "RULE:^CN=(.*)\\Z/$1/L",
    "RULE:[]C]N=(.*)/$1/", "RULE:\\(?<x|CN=(.*)/<$1>/",
]  # fmt: skip
_PARTS = ["^", "CN=", "(.*?)", "([^,]*)", ",", "OU=", ".*", "$", "(\\w+)", "[a-z]+", "(", ")", "?",
          "|", "x"]  # fmt: skip
_REPLACEMENTS = ["$1", "$2", "$0", "x", "$12", "\\$", "@", "$", "${a}", " ", "\\\\", "$01"]


def _rule() -> str:
    expression = "".join(_CHANCE.choices(_PARTS, k=_CHANCE.randrange(1, 7)))
    replacement = "".join(_CHANCE.choices(_REPLACEMENTS, k=_CHANCE.randrange(4)))
    return f"RULE:{expression}/{replacement}/{_CHANCE.choice(['', 'L', 'U', 'X'])}"


def _rules() -> str:
    between = _CHANCE.choice([",", " , "])
    return between.join(
        _CHANCE.choice(["DEFAULT", _CHANCE.choice(_RULES), *(_rule() for _ in range(4))])
        for _ in range(_CHANCE.randrange(1, 4))
    )


MAPPED = [
    [rules, name] for rules in [*_RULES, *(_rules() for _ in range(1500))] for name in _DNS
]


def ours(rules: str, name: str) -> str | None:
    """Return what our rules make of a name; None for an error, as Kafka's."""
    try:
        return PrincipalRules(rules).apply(name)
    except (ConfigError, NoRuleApplies):
        return None


@pytest.fixture(scope="module")
def kafkas() -> dict[str, list[Any]]:
    asked = {"names": [one.hex() for one in NAMES], "mapped": MAPPED}
    run = subprocess.run(
        program(_PROGRAM, flags=["-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]),
        input=json.dumps(asked).encode(),
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    answers: dict[str, list[Any]] = json.loads(run.stdout)
    return answers


def test_names_are_printed_as_java_prints_them(kafkas: dict[str, list[Any]]) -> None:
    for name, wanted in zip(NAMES, kafkas["names"], strict=True):
        (content,) = contents(name)
        assert rfc2253_name(content) == wanted, name.hex()


def contents(name: bytes) -> Sequence[bytes]:
    """Return a name without its own tag and length."""
    size = name[1]
    return [name[2 + (size & 0x7F if size & 0x80 else 0) :]]


def test_rules_map_names_as_kafkas_do(kafkas: dict[str, list[Any]]) -> None:
    refused = 0
    for (rules, name), wanted in zip(MAPPED, kafkas["mapped"], strict=True):
        found = ours(rules, name)
        if found is None and wanted is not None:
            # Refused as a whole, for a rule that Kafka has found no use for yet.
            with pytest.raises(ConfigError):
                PrincipalRules(rules)
            refused += 1
            continue
        assert found == wanted, (rules, name)
    assert refused < len(MAPPED) / 5
