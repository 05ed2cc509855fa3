"""What a topic may be called: Kafka's rule, character by character."""

import string

from hypothesis import example, given
from hypothesis import strategies as st

from odradek.broker.topics import names as topic_names

LEGAL = string.ascii_letters + string.digits + "._-"


def kafka_allows(name: str) -> bool:
    """Say as Topic.detectInvalidTopic of Apache Kafka does whether a name is allowed."""
    if name in ("", ".", "..") or len(name) > 249:
        return False
    return all("a" <= c <= "z" or "0" <= c <= "9" or "A" <= c <= "Z" or c in "._-" for c in name)


names = st.one_of(st.text(max_size=300), st.text(LEGAL, max_size=300))


@given(name=names)
@example("")
@example(".")
@example("..")
@example("...")
@example("a" * 249)
@example("a" * 250)
@example("orders\n")
@example("größe")
@example("٣")
def test_a_name_is_allowed_exactly_when_kafka_allows_it(name: str) -> None:
    assert (topic_names.problem(name) is None) == kafka_allows(name)


@given(name=names)
def test_a_problem_names_its_cause_as_kafka_does(name: str) -> None:
    problem = topic_names.problem(name)
    if problem is not None:
        assert problem.startswith("Topic name is invalid: ")
        assert name == "" or name in problem


@given(
    one=st.text("ab._-", min_size=1, max_size=4), other=st.text("ab._-", min_size=1, max_size=4)
)
def test_names_collide_exactly_when_kafka_says_so(one: str, other: str) -> None:
    """ReplicationControlManager looks for a collision only where a name has "." or "_"."""
    both_have_one = all("." in name or "_" in name for name in (one, other))
    collide = both_have_one and one.replace(".", "_") == other.replace(".", "_")
    if one != other:
        same = topic_names.collision_key(one) == topic_names.collision_key(other)
        assert same == collide
