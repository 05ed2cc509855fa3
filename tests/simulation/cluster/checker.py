"""Checks a history as Jepsen's Kafka workload does, in time that is linear in its length.

    lost            an acknowledged record is not there in the end
    twice           a record is there more than once
    order           records of a producer are in a partition in another order than sent
    offsets         a record is not at the offset that was answered, or an offset has two records
    aborted         a reader of committed records got an aborted one, or one before its commit
    atomic          a transaction is there in part
    group           a committed offset went back, or beyond all that was ever committed
    leaders         two brokers led a partition in one epoch
    sessions        a broker without a session has changed the catalog
    metadata        an acknowledged change is lost, or brokers disagree once all is quiet
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.simulation.cluster.history import (
    Append,
    CatalogChange,
    History,
    Led,
    OffsetCommit,
    Outcome,
    Place,
    Read,
    TopicChange,
)


def check(history: History) -> list[str]:
    """Return the problems of a history, a line each; none when all is well."""
    return list(history.troubles) + [
        f"{kind}: {problem}"
        for kind, problems in (
            ("lost", find_lost(history)),
            ("twice", find_repeated(history)),
            ("order", find_disorder(history)),
            ("offsets", find_moved(history)),
            ("aborted", find_aborted(history)),
            ("atomic", find_torn(history)),
            ("group", find_lost_commits(history)),
            ("leaders", find_rivals(history.led)),
            ("sessions", find_changes_without_session(history.catalog_changes)),
            ("metadata", find_lost_changes(history)),
        )
        for problem in problems
    ]


def find_lost(history: History) -> Iterator[str]:
    """Find acknowledged records that are not there."""
    all_there = {place: {one.value for one in reads} for place, reads in history.final.items()}
    committed = {
        place: {one.value for one in reads} for place, reads in history.final_committed.items()
    }
    for append in history.appends:
        of = append.transaction
        if append.outcome is not Outcome.DONE or (of and of.outcome is not Outcome.DONE):
            continue
        there = (committed if of else all_there).get(append.place)
        for value in append.values:
            if there is not None and value not in there:  # None: the run did not come to its end
                yield f"{value} in {append.place}, acknowledged at offset {append.offset}"


def find_repeated(history: History) -> Iterator[str]:
    """Find records that are there twice, or that nobody has sent there."""
    sent = {(one.place, value) for one in history.appends for value in one.values}
    for place, reads in history.final.items():
        seen: dict[str, int] = {}
        for one in reads:
            if one.value in seen:
                yield f"{one.value} in {place} at {seen[one.value]} and {one.offset}"
            if (place, one.value) not in sent:
                yield f"{one.value} in {place} at {one.offset} was never sent there"
            seen[one.value] = one.offset


def find_disorder(history: History) -> Iterator[str]:
    """Find records of a producer that are before earlier ones."""
    plain = {value for one in history.appends if one.is_plain for value in one.values}
    for place, reads in history.final.items():
        last: dict[str, int] = {}
        for one in reads:
            if one.value in plain:
                continue
            producer, _, number = one.value.rpartition("-")
            if int(number) <= last.get(producer, -1):
                yield f"{one.value} in {place} at {one.offset} comes after {last[producer]}"
            last[producer] = int(number)


def find_moved(history: History) -> Iterator[str]:
    """Find records at other offsets than readers or producers knew."""
    seen: dict[tuple[Place, int, int], Read] = {}
    final = [one for reads in history.final.values() for one in reads]
    for one in (*history.reads, *final):
        known = seen.setdefault((one.place, one.offset, one.epoch), one)
        if known.value != one.value:
            yield (
                f"{one.place} at {one.offset}, epoch {one.epoch}: {known.reader} read "
                f"{known.value}, {one.reader} read {one.value}"
            )
    yield from find_displaced(history)
    yield from find_unsorted(history)


def find_displaced(history: History) -> Iterator[str]:
    """Find records that are in the end at other offsets than their producers were given."""
    where = {
        (place, one.value): one.offset
        for place, reads in history.final.items()
        for one in reads
    }
    for append in history.appends:
        if append.outcome is Outcome.DONE and append.offset >= 0:
            for at, value in enumerate(append.values, append.offset):
                found = where.get((append.place, value), at)  # `find_lost` reports missing ones
                if found != at:
                    yield f"{value} in {append.place} is at {found}, answered was {at}"


def find_unsorted(history: History) -> Iterator[str]:
    """Find offsets that do not grow in the end."""
    for place, reads in history.final.items():
        for before, after in itertools.pairwise(reads):
            if after.offset <= before.offset:
                yield f"{place} has {after.offset} after {before.offset}"


def find_aborted(history: History) -> Iterator[str]:
    """Find records that readers got of aborted transactions, or before their commit."""
    of = transactions_by_value(history)
    final = (one for reads in history.final_committed.values() for one in reads)
    for one in (*history.reads, *final):
        append = of.get((one.place, one.value))
        if append is None or not one.is_committed:
            continue
        transaction = append.transaction
        assert transaction is not None
        if transaction.outcome is Outcome.UNDONE:
            yield f"{one.reader} read {one.value} of {one.place}, whose transaction was aborted"
        elif transaction.commit_at is None or one.at < transaction.commit_at:
            yield f"{one.reader} read {one.value} of {one.place} before its commit"


def find_torn(history: History) -> Iterator[str]:
    """Find transactions of which only a part is there, with the offsets they committed."""
    there = {
        (place, one.value) for place, reads in history.final_committed.items() for one in reads
    }
    parts: defaultdict[int, list[Append]] = defaultdict(list)
    for append in history.appends:
        is_read = append.place in history.final_committed
        if append.transaction is not None and append.outcome is Outcome.DONE and is_read:
            parts[id(append.transaction)].append(append)
    for appends in parts.values():
        transaction = appends[0].transaction
        values = [(one.place, value) for one in appends for value in one.values]
        missing = [one for one in values if one not in there]
        if missing and len(missing) < len(values):
            yield f"transaction {transaction}: {missing} of {len(values)} records are missing"


def find_lost_commits(history: History) -> Iterator[str]:
    """Find groups whose committed offset is less than was acknowledged, or was never committed.

    A commit without an answer may come into force at any time after it was sent.
    """
    commits: defaultdict[tuple[str, Place], list[OffsetCommit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    pending = {key: _Commits(list(some)) for key, some in commits.items()}
    for fetch in history.fetches:
        known = pending.get((fetch.group, fetch.place), _Commits([]))
        problem = known.problem(fetch.offset, fetch.begun_at)
        if problem:
            yield f"{fetch.group} found {fetch.offset} for {fetch.place}: {problem}"


class _Commits:
    """The commits of a group for one partition, taken in their order."""

    def __init__(self, commits: list[OffsetCommit]) -> None:
        # Of an aborted transaction nothing may come into force; of others, all may.
        self._possible = {one.offset for one in commits if _outcome(one) is not Outcome.UNDONE}
        self._unknown = {one.offset for one in commits if _outcome(one) is Outcome.UNKNOWN}
        self._done = iter([one for one in commits if _outcome(one) is Outcome.DONE])
        self._next = next(self._done, None)
        self._least = -1

    def problem(self, offset: int, begun_at: int) -> str:
        """Return what is wrong with an offset found; fetches come in their order."""
        while self._next is not None and (self._next.done_at or 0) < begun_at:
            self._least = self._next.offset
            self._next = next(self._done, None)
        if offset != -1 and offset not in self._possible:
            return "nobody has committed it"
        if offset < self._least and offset not in self._unknown:
            return f"{self._least} was acknowledged"
        return ""


def find_rivals(led: Iterable[Led]) -> Iterator[str]:
    """Find partitions with two leaders in one epoch."""
    leaders: dict[tuple[tuple[str, int], int], int] = {}
    for one in dict.fromkeys(led):
        leader = leaders.setdefault((one.partition, one.epoch), one.node_id)
        if leader != one.node_id:
            yield f"{one.partition} in epoch {one.epoch}: {leader} and {one.node_id}"


def find_changes_without_session(changes: Iterable[CatalogChange]) -> Iterator[str]:
    """Find changes by brokers whose sessions were closed, and revisions out of order."""
    last = 0
    for one in changes:
        if not one.has_session:
            yield f"broker {one.node_id} made change {one.revision} without a session"
        if one.revision != last + 1:
            yield f"change {one.revision} came after {last}"
        last = one.revision


def find_lost_changes(history: History) -> Iterator[str]:
    """Find acknowledged changes that are not in force, and brokers that disagree."""
    views = iter(history.views.items())
    first_name, first = next(views, ("", None))
    if first is None:
        return
    for name, view in views:
        if view.members != first.members:
            yield f"{first_name} knows {first.members}, {name} knows {view.members}"
        for topic_id in sorted(first.topics.keys() | view.topics.keys()):
            ours, theirs = first.topics.get(topic_id), view.topics.get(topic_id)
            if ours != theirs:
                yield f"topic {topic_id}: {first_name} has {ours}, {name} has {theirs}"
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
) -> Iterator[str]:
    deletions = [one for one in changes if one.kind == "delete"]
    name = changes[0].topic
    if any(one.outcome is Outcome.DONE for one in deletions):
        if found is not None:
            yield f"{name} was deleted, and is there"
        return
    if found is None:
        created = any(one.outcome is Outcome.DONE for one in changes if one.kind == "create")
        if created and not deletions:
            yield f"{name} was created, and is gone"
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
                yield f"{name}: {kind} is {found[kind]}, of {sorted(possible)}"


def _outcome(commit: OffsetCommit) -> Outcome:
    """Return the outcome of a commit: its transaction's, where it has one."""
    if commit.transaction is None or commit.outcome is Outcome.UNDONE:
        return commit.outcome
    if commit.transaction.outcome is Outcome.DONE and commit.outcome is Outcome.UNKNOWN:
        return Outcome.UNKNOWN
    return commit.transaction.outcome


def transactions_by_value(history: History) -> dict[tuple[Place, str], Append]:
    """Return the appends of transactions by the partition and value of each record."""
    return {
        (one.place, value): one
        for one in history.appends
        if one.transaction is not None
        for value in one.values
    }
