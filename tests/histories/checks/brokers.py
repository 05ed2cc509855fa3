"""Brokers that lead at the same time, change the catalog without a right, or disagree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.histories.checks.problem import Problem
from tests.histories.history import CatalogChange, Event, History, Led, Outcome, TopicChange

_Said = tuple[str, tuple[Event, ...]]


def find_rivals(led: Iterable[Led]) -> Iterator[Problem]:
    """Find partitions with two leaders in one epoch."""
    leaders: dict[tuple[tuple[str, int], int], dict[int, Led]] = {}
    for one in led:
        known = leaders.setdefault((one.partition, one.epoch), {})
        if one.node_id in known:
            continue
        for first in list(known.values())[:1]:
            said = f"{one.partition} in epoch {one.epoch}: {first.node_id} and {one.node_id}"
            place = (one.topic or one.partition[0], one.partition[1])
            yield Problem("leaders", said, place, events=(first, one))
        known[one.node_id] = one


def find_changes_without_session(changes: Iterable[CatalogChange]) -> Iterator[Problem]:
    """Find changes by brokers whose sessions were closed, and revisions out of order."""
    last = 0
    for one in changes:
        if not one.has_session:
            said = f"broker {one.node_id} made change {one.revision} without a session"
            yield Problem("sessions", said, events=(one,))
        if one.revision != last + 1:
            said = f"change {one.revision} came after {last}"
            yield Problem("sessions", said, events=(one,))
        last = one.revision


def find_lost_changes(history: History) -> Iterator[Problem]:
    """Find acknowledged changes that are not in force, and brokers that disagree."""
    for said, events in _lost_changes(history):
        yield Problem("metadata", said, events=events)


def _lost_changes(history: History) -> Iterator[_Said]:
    views = iter(history.views.items())
    first_name, first = next(views, ("", None))
    if first is None:
        return
    for name, view in views:
        if view.members != first.members:
            yield f"{first_name} knows {first.members}, {name} knows {view.members}", ()
        for topic_id in sorted(first.topics.keys() | view.topics.keys()):
            ours, theirs = first.topics.get(topic_id), view.topics.get(topic_id)
            if ours != theirs:
                yield f"topic {topic_id}: {first_name} has {ours}, {name} has {theirs}", ()
    by_topic: defaultdict[str, list[TopicChange]] = defaultdict(list)
    # A change that was not answered names a topic by its name: it may change a later one.
    unknown: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for change in history.topic_changes:
        if change.topic_id:
            by_topic[change.topic_id].append(change)
        if change.outcome is Outcome.UNKNOWN:
            unknown[change.topic, change.kind].add(change.value)
    for topic_id, changes in by_topic.items():
        yield from _lost_of_topic(first.topics.get(topic_id), changes, unknown)


def _lost_of_topic(
    found: dict[str, int] | None,
    changes: list[TopicChange],
    unknown: Mapping[tuple[str, str], set[int]],
) -> Iterator[_Said]:
    deletions = [one for one in changes if one.kind == "delete"]
    name = changes[0].topic
    if any(one.outcome is Outcome.DONE for one in deletions):
        if found is not None:
            yield f"{name} was deleted, and is there", tuple(deletions)
        return
    if found is None:
        created = any(one.outcome is Outcome.DONE for one in changes if one.kind == "create")
        if created and not deletions:
            yield f"{name} was created, and is gone", tuple(changes)
        return
    for kind in ("partitions", "setting"):
        done = [
            one.value for one in changes if one.kind == kind and one.outcome is Outcome.DONE
        ]
        if done:
            possible = unknown.get((name, kind), set()) | {done[-1]}
            if kind == "partitions":  # they only grow
                possible = {one for one in possible if one >= max(done)}
            if found[kind] not in possible:
                yield f"{name}: {kind} is {found[kind]}, of {sorted(possible)}", tuple(changes)
