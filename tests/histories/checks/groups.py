"""The committed offsets of groups, and the records of share groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.checks.problem import Problem
from tests.histories.history import (
    Acknowledgement,
    History,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    ShareAck,
)


def find_lost_commits(history: History) -> Iterator[Problem]:
    """Find groups whose committed offset is less than was acknowledged, or was never committed.

    A commit without an answer may come into force at any time after it was sent.
    """
    commits: defaultdict[tuple[str, Place], list[OffsetCommit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    pending = {key: _Commits(some) for key, some in commits.items()}
    for fetch in sorted(history.fetches, key=lambda one: one.at):
        known = pending.get((fetch.group, fetch.place)) or _Commits([])
        problem = known.problem(fetch)
        if problem:
            said = f"{fetch.group} found {fetch.offset} for {fetch.place}: {problem}"
            events = (known.least, fetch) if known.least else (fetch,)
            offsets = tuple(one.offset for one in events)
            yield Problem("group", said, fetch.place, offsets, events)


class _Commits:
    """The commits of a group for one partition, taken in the order of their ends."""

    def __init__(self, commits: list[OffsetCommit]) -> None:
        # Of an aborted transaction nothing may come into force; of others, all may.
        self._possible = {one.offset for one in commits if _outcome(one) is not Outcome.UNDONE}
        self._unknown = {one.offset for one in commits if _outcome(one) is Outcome.UNKNOWN}
        done = [one for one in commits if _outcome(one) is Outcome.DONE]
        self._done = iter(sorted(done, key=lambda one: one.done_at or 0))
        self._next = next(self._done, None)
        # The least offset that may be in force.
        self.least: OffsetCommit | None = None
        self._last_end = 0

    def problem(self, fetch: OffsetFetch) -> str:
        """Return a sentence about an offset found; fetches come by their beginnings."""
        while self._next is not None and (self._next.done_at or 0) < fetch.at:
            one = self._next
            # Of two that overlap, either may have been the last.
            if self.least is None or one.at > self._last_end or one.offset < self.least.offset:
                self.least = one
            self._last_end = one.done_at or 0
            self._next = next(self._done, None)
        if fetch.offset != -1 and fetch.offset not in self._possible:
            return "nobody has committed it"
        least = self.least.offset if self.least else -1
        if fetch.offset < least and fetch.offset not in self._unknown:
            return f"{least} was acknowledged"
        return ""


def _outcome(commit: OffsetCommit) -> Outcome:
    """Return the outcome of a commit: its transaction's, where it has one."""
    if commit.transaction is None or commit.outcome is Outcome.UNDONE:
        return commit.outcome
    if commit.transaction.outcome is Outcome.DONE and commit.outcome is Outcome.UNKNOWN:
        return Outcome.UNKNOWN
    return commit.transaction.outcome


def find_commits_beyond(history: History) -> Iterator[Problem]:
    """Find positions of groups beyond the log's end: they have read records that are gone."""
    for one in history.commits:
        end = history.final_ends.get(one.place)
        if end is None or not one.is_position or not history.topic(one.place).keeps_reads:
            continue
        if one.offset > end:
            said = f"{one.group} committed {one.offset} for {one.place}, whose log ends at {end}"
            yield Problem("group", said, one.place, (one.offset, end), (one,))


def find_shared_twice(history: History) -> Iterator[Problem]:
    """Find records that were settled twice for a share group, or delivered after that.

    A record that was accepted or rejected has its last state; another acknowledgement of it is
    an error, also for the same member. One that was released comes again.
    """
    settled: dict[tuple[str, Place, int], ShareAck] = {}
    final = (Acknowledgement.ACCEPT, Acknowledgement.REJECT)
    for ack in history.acks:
        if ack.outcome is not Outcome.DONE or ack.kind not in final:
            continue
        for offset in range(ack.first, ack.last + 1):
            before = settled.setdefault((ack.group, ack.place, offset), ack)
            if before is not ack:
                said = (
                    f"{ack.group}: {ack.place} at {offset}: {before.kind.value} by "
                    f"{before.member} and {ack.kind.value} by {ack.member} were both answered"
                )
                yield Problem("shares", said, ack.place, (offset,), (before, ack))
    for one in history.deliveries:
        known = settled.get((one.group, one.place, one.offset))
        if known is not None and (known.done_at or 0) < one.at:
            said = (
                f"{one.group}: {one.value} of {one.place} at {one.offset} was delivered to "
                f"{one.member} after {known.member} had it settled ({known.kind.value})"
            )
            yield Problem("shares", said, one.place, (one.offset,), (known, one))
