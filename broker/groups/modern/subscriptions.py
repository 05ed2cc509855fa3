"""Which topics the members of a group read, by name and by regular expression.

Kafka's source: ModernGroup.subscribedTopicNames, ConsumerGroup.subscriptionType.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field

from broker.errors import Refusal
from broker.groups.modern.topics import TopicView
from protocol.errors import ErrorCode
from protocol.pacing import paced

# Of one group: heartbeats and assignments go through all of them. A group may read all topics that
# there are; beyond that, names of none are what a client makes up. Kafka has no limit.
NAMES_MAX = 10_000


@dataclass(slots=True)
class Subscriptions:
    """How many members read each topic; owned by their group."""

    by_name: Counter[str] = field(default_factory=Counter)
    # How many members subscribe to each regular expression.
    expressions: Counter[str] = field(default_factory=Counter)
    # How many expressions have matched each topic.
    by_expression: Counter[str] = field(default_factory=Counter)

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_expression

    def __iter__(self) -> Iterator[str]:
        """Iterate over the topics that are read, each once."""
        return iter({**self.by_name, **self.by_expression})

    def add(self, names: Iterable[str], expression: str | None = None) -> None:
        """Count a member in."""
        self.by_name.update(names)
        if expression:
            self.expressions[expression] += 1

    def check_room(self, names: Iterable[str], topics: TopicView) -> None:
        """Raise Refusal when a member brings more names than a group has room for."""
        count = len(self.by_name) + len(set(names).difference(self.by_name))
        _check_count(count, topics)

    def remove(self, names: Iterable[str], expression: str | None = None) -> None:
        """Count a member out."""
        discount(self.by_name, names)
        if expression:
            discount(self.expressions, (expression,))

    def match(self, old: Set[str], new: Set[str]) -> None:
        """Change the topics that an expression has matched."""
        discount(self.by_expression, old - new)
        self.by_expression.update(new - old)

    def are_alike(self, member_count: int) -> bool:
        """Return whether all members read the same topics, as far as counting can tell."""
        if not self.expressions:
            return all(count == member_count for count in self.by_name.values())
        if next(iter(self.expressions.values())) != member_count:
            return False
        return not self.by_name and all(count == 1 for count in self.by_expression.values())


def check_names(names: Collection[str] | None, topics: TopicView) -> None:
    """Raise Refusal for more names than any group has room for, before a group is asked.

    A group decides in one piece.
    """
    if names is not None and len(names) > NAMES_MAX:
        _check_count(len(set(paced(names))), topics)


def _check_count(count: int, topics: TopicView) -> None:
    if count > NAMES_MAX and count > len(list(topics.names())):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"The group would subscribe to {count} topics, of which most do not exist.",
        )


def discount(counter: Counter[str], keys: Iterable[str]) -> None:
    """Count keys down, and forget those that are down to nothing."""
    for key in keys:
        counter[key] -= 1
        if counter[key] <= 0:
            del counter[key]
