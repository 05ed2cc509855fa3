"""Regular expressions that members subscribe to, in RE2's language and in time linear in a name.

All expressions of a group are matched together with all topics, at most every 10 seconds: when a
member brings a new expression, when topics have been created, and when the last match was
group.consumer.regex.refresh.interval.ms ago. The heartbeat does not wait for it. The coordinator
matches them in a thread, as Kafka does. If other topics match than before, the group's epoch is
raised.

Kafka's source: GroupMetadataManager.maybeUpdateRegularExpressions, TopicRegexResolver.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import re2

from odradek.broker.coordination.effects import Act, Caller
from odradek.broker.coordination.expressions import compile_expression, matched
from odradek.broker.errors import Refusal
from odradek.broker.groups.consumer.effects import ConsumerTimer, MatchExpressions
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Member
from odradek.broker.groups.consumer.records import Kind
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_records import ConsumerGroupRegularExpressionValue

# Each expression is matched with all topics. Members of a group have the same one, or differ
# during an update. Kafka has no limit.
EXPRESSIONS_MAX = 32
# Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS.
_REFRESH_MIN_MS = 10_000
_NEVER_MS = -(2**63)
_WORDS_OF_RE2J = {
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


class Change(enum.Enum):
    """The change of a member's expression by its heartbeat."""

    NONE = "none"
    CHANGED = "changed"  # to an expression that is not matched yet
    CHANGED_AND_RESOLVED = "changed and resolved"


@dataclass(frozen=True, slots=True)
class Before:
    """The state of a group's expressions before a member changes its own."""

    subscriber_count: int
    resolved_count: int
    resolved_ms: int
    version: int
    has_any: bool


def check(group: ConsumerGroup, member: Member, expression: str | None) -> None:
    """Raise Refusal for an expression that is new to the group and invalid, or one too many."""
    if not expression or expression == member.expression:
        return
    known = group.subscriptions.expressions
    if expression not in known:
        if len(known) >= EXPRESSIONS_MAX:
            raise Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"The group has reached its limit of {len(known)} regular expressions.",
            )
        try:
            compile_expression(expression)
        except re2.error as error:
            raise Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{expression}` is not a valid regular expression: "
                f"{_reason(error)}.",
            ) from error


def before(group: ConsumerGroup, expression: str | None) -> Before:
    """Return the state of a group's expressions, before a member's new subscription."""
    last = next(iter(group.resolved.values()), None)
    return Before(
        subscriber_count=group.subscriptions.expressions[expression or ""],
        resolved_count=len(group.resolved),
        resolved_ms=last.timestamp_ms if last else _NEVER_MS,
        version=last.version if last else 0,
        has_any=bool(group.subscriptions.expressions),
    )


def update(
    turn: ConsumerTurn, old: str | None, new: str | None, was: Before, caller: Caller
) -> Change:
    """Follow a member's change of its expression, and start a match of all if it is due.

    Only topics that the caller may describe can match.
    """
    group = turn.group
    change, is_new = Change.NONE, False
    if old != new:
        change = Change.CHANGED
        if old and not group.subscriptions.expressions[old]:
            turn.emit(Kind.EXPRESSION, None, old)
        if new:
            is_new = was.subscriber_count == 0
            if not is_new and new in group.resolved:
                change = Change.CHANGED_AND_RESOLVED
        elif old:
            change = Change.CHANGED_AND_RESOLVED
    if (is_new or was.has_any) and _is_due(turn, was, is_new=is_new):
        group.is_resolving, group.describable = True, caller.describable
        turn.start_timer(ConsumerTimer.EXPRESSIONS, "", 0)
    return change


def begin_matching(turn: ConsumerTurn) -> None:
    """Ask for a match of the group's expressions with all present topics."""
    topics = turn.around.topics
    action = MatchExpressions(
        turn.group.group_id,
        tuple(turn.group.subscriptions.expressions),
        tuple(topics.names()),
        topics.version(),
    )
    turn.effects.append(Act(action))


def take_matched(
    turn: ConsumerTurn, action: MatchExpressions, found: Mapping[str, frozenset[str]]
) -> None:
    """Take in the topics that expressions match; raise the group's epoch if they differ.

    Expressions that no member subscribes to any more are left out.
    """
    group = turn.group
    describable, group.is_resolving, group.describable = group.describable, False, None
    present = group.subscriptions.expressions
    found = {expression: names for expression, names in found.items() if expression in present}
    if describable is not None:
        known = describable(frozenset().union(*found.values()))
        found = {expression: names & known for expression, names in found.items()}
    has_changed = False
    for expression, names in found.items():
        before = group.resolved.get(expression)
        has_changed |= names != (before.topics if before else frozenset())
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(names), version=action.version, timestamp=turn.now_ms
        )
        turn.emit(Kind.EXPRESSION, value, expression)
    if has_changed or turn.hash() != group.metadata_hash:
        turn.raise_epoch()


def match_all(expressions: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the topics that each expression matches as a whole; an invalid one matches none."""
    everything = list(names)
    return {expression: _matched(expression, everything) for expression in expressions}


def _matched(expression: str, names: Iterable[str]) -> frozenset[str]:
    try:
        pattern = compile_expression(expression)
    except re2.error:
        return frozenset()
    return matched(pattern, names)


def _is_due(turn: ConsumerTurn, was: Before, *, is_new: bool) -> bool:
    group = turn.group
    if group.is_resolving or turn.now_ms <= was.resolved_ms + _REFRESH_MIN_MS:
        return False
    expressions = group.subscriptions.expressions
    refresh_ms = turn.config.regex_refresh_interval_ms
    return bool(expressions) and (
        is_new
        or len(expressions) != was.resolved_count
        or was.version < turn.around.topics_version
        or turn.now_ms > was.resolved_ms + refresh_ms
    )


def _reason(error: Exception) -> str:
    """Return RE2's reason in the words of RE2/J, without the quoted part of the expression."""
    (message,) = error.args
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    reason = text.partition(": ")[0]
    return _WORDS_OF_RE2J.get(reason, reason)
