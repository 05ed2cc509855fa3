"""Access control entries by the thousand: what one request may cost, and what one change may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, Requester, ResourceKind
from odradek.broker.security.authorizer import AclAuthorizer
from odradek.broker.security.principals import Principal

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANN = Requester(Principal("User", "ann"), "10.0.0.1", 3, 12, "a-client", "PLAINTEXT")
COUNT, NAMES = 10_000, 1_000


def acl(
    name: str,
    pattern: PatternType = PREFIXED,
    principal: str = "User:ann",
    host: str = "*",
    operation: AclOperation = AclOperation.READ,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(ResourceKind.TOPIC, name, pattern, principal, host, operation, permission)


def authorizer(acls: Iterable[Acl]) -> AclAuthorizer:
    return AclAuthorizer(acls, set(), AuthorizationCounts(), allows_by_default=False)


def host(number: int) -> str:
    return f"10.1.{number // 256}.{number % 256}"


def both(number: int) -> str:
    return ("User:ann", "User:*")[number % 2]


# How entries may lie, each with names of a request.
CASES: dict[str, tuple[Callable[[int], Acl], Callable[[int], str]]] = {
    "a name each": (lambda n: acl(f"t{n:05}", LITERAL), lambda n: f"t{n:05}"),
    "a prefix each": (lambda n: acl(f"t{n:05}"), lambda n: f"t{n:05}-x"),
    "a host each": (lambda n: acl("t", host=host(n)), lambda n: f"t{n}"),
    "hosts of ann and of all": (lambda n: acl("t", LITERAL, both(n), host(n)), lambda n: "t"),
    "hosts, and names": (lambda n: acl("t", PREFIXED, both(n), host(n)), lambda n: f"t{n}"),
    "principals": (lambda n: acl("t", principal=f"User:u{n}"), lambda n: f"t{n}"),
    "names with one beginning": (lambda n: acl("t" * 200 + f"{n}"), lambda n: "t" * 210 + f"{n}"),
    "lengths": (lambda n: acl("t" * (n % 240 + 1), host=host(n // 240)), lambda n: f"tt{n}"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_request_of_many_names_takes_little_time_among_many_entries(name: str) -> None:
    entry, asked = CASES[name]
    ours = authorizer(map(entry, range(COUNT)))
    begun_s = time.process_time()
    for operation in (AclOperation.READ, AclOperation.WRITE):
        for number in range(NAMES):
            ours.may(ANN, operation, ResourceKind.TOPIC, asked(number))
    for number in range(20):
        one = Requester(Principal("User", f"u{number}"), "10.0.0.1", 22, 4, "", "PLAINTEXT")
        ours.may_any(one, AclOperation.WRITE, ResourceKind.TOPIC)
    # Some 20 ms. To look at each entry about a name took 600 ms and more.
    assert time.process_time() - begun_s < 0.3


def test_any_of_many_prefixes_is_found_in_little_time_where_all_are_denied() -> None:
    longer = (acl(f"{n:05}" + "t" * 200, operation=AclOperation.WRITE) for n in range(COUNT))
    denied = (
        acl(f"{n:05}" + "t" * 199, operation=AclOperation.WRITE, permission=Permission.DENY)
        for n in range(COUNT)
    )
    ours = authorizer([*longer, *denied])
    begun_s = time.process_time()
    assert not ours.may_any(ANN, AclOperation.WRITE, ResourceKind.TOPIC)
    assert time.process_time() - begun_s < 0.2  # to try each beginning took 500 ms


def test_a_change_takes_no_longer_with_many_entries() -> None:
    ours = authorizer(acl(f"t{n:05}", LITERAL) for n in range(COUNT))
    begun_s = time.process_time()
    for number in range(100):
        ours.change(added=[acl(f"new{number}")])
        assert ours.may(ANN, AclOperation.READ, ResourceKind.TOPIC, f"new{number}-a")
        ours.change(removed=[acl(f"new{number}")])
        assert not ours.may(ANN, AclOperation.READ, ResourceKind.TOPIC, f"new{number}-a")
    assert time.process_time() - begun_s < 1.0  # all put in force each time took 5 s


def test_decisions_about_long_names_are_not_remembered() -> None:
    ours = authorizer([acl("t")])
    for number in range(100):
        name = Principal("User", f"{number}" + "n" * 10_000)
        one = Requester(name, "10.0.0.1", 3, 12, "", "PLAINTEXT")
        assert not ours.may(one, AclOperation.READ, ResourceKind.TOPIC, "t")
        assert ours.may(ANN, AclOperation.READ, ResourceKind.TOPIC, f"t{number}" + "x" * 10_000)
    assert not ours._rules


ENTRIES = st.builds(
    acl,
    st.sampled_from(["a", "ab", "abc", "abd", "b", "*", "*a"]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:ann", "User:*", "User:bob"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([AclOperation.ALL, AclOperation.READ, AclOperation.WRITE]),
    st.sampled_from([Permission.DENY, Permission.ALLOW]),
)


@given(st.lists(st.tuples(st.booleans(), st.lists(ENTRIES, max_size=8)), max_size=8))
def test_entries_that_change_decide_as_those_that_were_there_from_the_start(
    steps: list[tuple[bool, list[Acl]]],
) -> None:
    ours, there = authorizer([]), set[Acl]()
    for is_added, entries in steps:
        if is_added:
            ours.change(added=entries)
            there |= set(entries)
        else:
            ours.change(removed=entries)
            there -= set(entries)
        fresh = authorizer(there)
        assert ours.acls == there
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE):
            for name in ("a", "ab", "abc", "abcd", "b", "c", "*", "*ab"):
                ours.may(ANN, operation, ResourceKind.TOPIC, name)
                fresh.may(ANN, operation, ResourceKind.TOPIC, name)
            assert ours.may_any(ANN, operation, ResourceKind.TOPIC) == fresh.may_any(
                ANN, operation, ResourceKind.TOPIC
            )
        assert ours._rules == fresh._rules
    ours.change(removed=list(there))
    index = ours._index
    assert not (index._literal or index._of_asker or ours.acls)
    assert not any(one._patterns for one in index._prefixed.values())
