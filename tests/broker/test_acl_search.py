"""Entries are found for a filter as if each of them had been looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.security.acl_search import AclSearch
from odradek.broker.security.acls import Acl, AclFilter, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind

NAMES = ["*", "a", "ab", "abc", "b", ""]
PRINCIPALS = ["User:ann", "User:bob", "User:*"]
HOSTS = ["*", "127.0.0.1"]

acls = st.builds(
    Acl,
    st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
filters = st.builds(
    AclFilter,
    st.sampled_from([ResourceKind.ANY, ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.USER]),
    st.none() | st.sampled_from([*NAMES, "abcd"]),
    st.sampled_from(
        [PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]
    ),
    st.none() | st.sampled_from([*PRINCIPALS, "User:eve"]),
    st.none() | st.sampled_from([*HOSTS, "127.0.0.2"]),
    st.sampled_from([AclOperation.ANY, AclOperation.READ, AclOperation.WRITE]),
    st.sampled_from([Permission.ANY, Permission.ALLOW]),
)


@given(st.frozensets(acls, max_size=40), st.lists(filters, max_size=20))
def test_a_search_finds_what_a_filter_means(
    stored: frozenset[Acl], asked: list[AclFilter]
) -> None:
    search = AclSearch(stored)
    for which in asked:
        found = search.find(which)
        assert len(found) == len(set(found))
        assert set(found) == set(filter(which.matches, stored))
