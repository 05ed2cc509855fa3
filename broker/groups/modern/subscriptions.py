"""The topics that the members of a group read, by name and by regular expression.

Kafka's source: ModernGroup.subscribedTopicNames, ConsumerGroup.subscriptionType.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import field

from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.topics import TopicView
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

# The most names of one group, unless as many topics exist: heartbeats and assignments go through
# all names. A group may read all topics; a client may invent names of others. Kafka has no limit.
NAMES_MAX = 10_000


@dataclass(slots=True)
class Subscriptions:
    """The number of members that read each topic; the group owns it."""

    by_name: Counter[str] = field(default_factory=Counter)
    # The number of members that subscribe to each regular expression.
    expressions: Counter[str] = field(default_factory=Counter)
    # The number of expressions that have matched each topic.
    by_expression: Counter[str] = field(default_factory=Counter)

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_expression

    def __iter__(self) -> Iterator[str]:
        """Iterate over the topics that members read, each once."""
        return iter({**self.by_name, **self.by_expression})

    def add(self, names: Iterable[str], expression: str | None = None) -> None:
        """Count a member's subscription."""
        self.by_name.update(names)
        if expression:
            self.expressions[expression] += 1

    def check_room(self, names: Iterable[str], topics: TopicView) -> None:
        """Raise Refusal when a member's names exceed the limit of a group."""
        count = len(self.by_name) + len(set(names).difference(self.by_name))
        _check_count(count, topics)

    def remove(self, names: Iterable[str], expression: str | None = None) -> None:
        """Remove a member's subscription from the counts."""
        discount(self.by_name, names)
        if expression:
            discount(self.expressions, (expression,))

    def match(self, old: Set[str], new: Set[str]) -> None:
        """Change the matched topics of an expression."""
        discount(self.by_expression, old - new)
        self.by_expression.update(new - old)

    def are_alike(self, member_count: int) -> bool:
        """Return whether all members read the same topics, as far as the counts show."""
        if not self.expressions:
            return all(count == member_count for count in self.by_name.values())
        if next(iter(self.expressions.values())) != member_count:
            return False
        return not self.by_name and all(count == 1 for count in self.by_expression.values())


def check_names(names: Collection[str] | None, topics: TopicView) -> None:
    """Raise Refusal for more names than a group may have, before the group handles the request.

    This check pauses, but a group's operation cannot.
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
    """Decrease the counts of keys, and remove keys whose counts reach 0."""
    for key in keys:
        counter[key] -= 1
        if counter[key] <= 0:
            del counter[key]
