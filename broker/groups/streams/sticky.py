"""Kafka's sticky assignor of tasks.

Each member keeps the active tasks that it had, up to an equal share; then come members that had a
copy of a task; the rest goes to the process with the least load, as ranges of each subtopology.
Standby tasks go to processes that do not have the task, by the same preferences.

Kafka's sources: StickyTaskAssignor, ProcessState.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.broker.groups.streams.queue import LeastFirst
from odradek.broker.groups.streams.tasks import Partitions, Tasks
from odradek.broker.orders.java import hash_order
from odradek.dataclass import dataclass

NAME = "sticky"

# The place of a subtopology in their order, and a partition: sorted as Kafka sorts its task ids.
_Task = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SubtopologySpec:
    """A subtopology; a stateful one may have standby tasks."""

    name: str
    task_count: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member's process, and its present target."""

    process_id: str
    present: Tasks


def assign(
    members: Mapping[str, MemberSpec], subtopologies: Sequence[SubtopologySpec], standbys: int
) -> Mapping[str, Tasks]:
    """Assign all tasks to members.

    Members are in the order of Kafka's map, subtopologies in that of their ids. `standbys` is the
    number of standby tasks for each active task of a stateful subtopology.
    """
    if not members:
        return {}
    work = _Assigning(members, subtopologies, standbys)
    work.assign_active()
    if standbys > 0:
        work.assign_standby()
    return work.result()


class _Process:
    """A process: its members, and the tasks that they have been given."""

    __slots__ = ("_by_load", "_task_count", "counts", "load", "tasks")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.tasks: set[_Task] = set()
        self.load = 0.0
        self._task_count = 0
        # Members by load, while tasks go to the least loaded one.
        self._by_load: LeastFirst[str] | None = None

    def give(self, member_id: str, task: _Task) -> int:
        """Count a task of a member; return the number of its tasks."""
        self._by_load = None
        return self._give(member_id, task)

    def give_least_loaded(self, task: _Task) -> tuple[str, int]:
        """Count a task of the least loaded member; return it, and the number of its tasks."""
        if len(self.counts) == 1:
            (member_id,) = self.counts
            return member_id, self._give(member_id, task)
        if self._by_load is None:
            self._by_load = LeastFirst(self.counts.__getitem__, hash_order(self.counts))
        member_id = self._by_load.take()
        count = self._give(member_id, task)
        self._by_load.add(member_id)
        return member_id, count

    def _give(self, member_id: str, task: _Task) -> int:
        self.tasks.add(task)
        self._task_count += 1
        self.load = self._task_count / len(self.counts)
        count = self.counts[member_id] = self.counts[member_id] + 1
        return count


class _Quota:
    """An equal share of tasks; it is computed again when a member has reached it."""

    __slots__ = ("_members", "_tasks", "share")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.share = _share(tasks, members)

    def reached(self, count: int) -> None:
        """Note that a member has so many tasks now."""
        if count == self.share:
            self._members -= 1
            self._tasks -= count
            self.share = _share(self._tasks, self._members)


class _Assigning:
    """The state of one assignment."""

    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Sequence[SubtopologySpec],
        standbys: int,
    ) -> None:
        self._subtopologies, self._standbys = subtopologies, standbys
        self._process_of = {name: one.process_id for name, one in members.items()}
        active = sum(one.task_count for one in subtopologies)
        stateful = sum(one.task_count for one in subtopologies if one.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + stateful * standbys, len(members))
        self._processes: dict[str, _Process] = {}
        self._had_active: dict[_Task, str] = {}
        self._had_standby: dict[_Task, list[str]] = {}
        self._active: dict[str, list[_Task]] = {name: [] for name in members}
        self._standby: dict[str, list[_Task]] = {name: [] for name in members}
        places = {one.name: place for place, one in enumerate(subtopologies)}
        for member_id, spec in members.items():
            self._processes.setdefault(spec.process_id, _Process()).counts[member_id] = 0
            for task in _each(spec.present.active, places):
                self._had_active[task] = member_id
            for task in _each(spec.present.standby, places):
                self._had_standby.setdefault(task, []).append(member_id)

    def assign_active(self) -> None:
        """Assign the active tasks."""
        remaining = sorted(self._tasks(), key=lambda task: (task[1], task[0]))
        remaining = [
            task
            for task in remaining
            if not self._give_active(self._had_active.get(task), task)
        ]
        remaining = [
            task
            for task in remaining
            if not self._give_active(self._least_loaded(self._had_standby.get(task, ())), task)
        ]
        processes = self._by_load()
        for task in sorted(remaining):
            process = processes.take()
            member_id, count = process.give_least_loaded(task)
            self._note(self._active, member_id, task)
            self._active_quota.reached(count)
            self._quota.reached(count)
            processes.add(process)

    def assign_standby(self) -> None:
        """Assign the standby tasks."""
        tasks = sorted(
            self._tasks(only_stateful=True), key=lambda task: (task[1], task[0]), reverse=True
        )
        rest: list[tuple[_Task, int]] = []
        for task in tasks:
            for given in range(self._standbys):
                if not self._give_standby(task):
                    rest.append((task, self._standbys - given))
                    break
        processes = self._by_load()
        for task, count in sorted(rest, reverse=True):
            for _ in range(count):
                if not self._give_least_loaded(processes, task):
                    break

    def result(self) -> Mapping[str, Tasks]:
        """Return the tasks of each member."""
        return {
            member_id: Tasks(
                self._named(self._active[member_id]), self._named(self._standby[member_id])
            )
            for member_id in self._process_of
        }

    def _tasks(self, *, only_stateful: bool = False) -> Iterator[_Task]:
        for place, one in enumerate(self._subtopologies):
            if one.is_stateful or not only_stateful:
                for partition in range(one.task_count):
                    yield place, partition

    def _by_load(self) -> LeastFirst[_Process]:
        # Kafka's map of processes is created for as many processes as there are members.
        ordered = hash_order(self._processes, capacity=len(self._process_of))
        return LeastFirst(lambda one: one.load, [self._processes[name] for name in ordered])

    def _process(self, member_id: str) -> _Process:
        return self._processes[self._process_of[member_id]]

    def _note(self, tasks: dict[str, list[_Task]], member_id: str, task: _Task) -> None:
        tasks[member_id].append(task)

    def _give_active(self, member_id: str | None, task: _Task) -> bool:
        """Give a task to a member that had it, unless it has its share."""
        if member_id is None:
            return False
        process = self._process(member_id)
        if process.counts[member_id] >= self._active_quota.share:
            return False
        count = process.give(member_id, task)
        self._note(self._active, member_id, task)
        self._active_quota.reached(count)
        self._quota.reached(count)
        return True

    def _give_standby(self, task: _Task) -> bool:
        """Give a standby task to a member that had the task, in either role."""
        active = self._had_active.get(task)
        is_free = active is not None and task not in self._process(active).tasks
        if active is not None and is_free and self._give_standby_to(active, task):
            return True
        standby = self._least_loaded(self._had_standby.get(task, ()), task)
        return standby is not None and self._give_standby_to(standby, task)

    def _give_standby_to(self, member_id: str, task: _Task) -> bool:
        process = self._process(member_id)
        if process.counts[member_id] >= self._quota.share:
            return False
        self._quota.reached(process.give(member_id, task))
        self._note(self._standby, member_id, task)
        return True

    def _give_least_loaded(self, processes: LeastFirst[_Process], task: _Task) -> bool:
        """Give a standby task to the least loaded process without the task."""
        passed: list[_Process] = []
        found = False
        while processes and not found:
            process = processes.take()
            passed.append(process)
            if task not in process.tasks:
                member_id, count = process.give_least_loaded(task)
                self._note(self._standby, member_id, task)
                self._quota.reached(count)
                found = True
        for process in reversed(passed):
            processes.add(process)
        return found

    def _least_loaded(self, members: Sequence[str], task: _Task | None = None) -> str | None:
        """Return the least loaded of the members that had a standby task.

        With a task, its process must not have the task; as in Kafka, that of the first member
        must not have it either.
        """
        if not members:
            return None
        candidate = members[0]
        first = self._process(candidate)
        process_load, load = first.load, first.counts[candidate]
        for member_id in members[1:]:
            process = self._process(member_id)
            is_fit = task is None or task not in process.tasks
            if process.load < process_load and is_fit and process.counts[member_id] < load:
                candidate = member_id
                process_load, load = process.load, process.counts[member_id]
        return None if task is not None and task in first.tasks else candidate

    def _named(self, tasks: Sequence[_Task]) -> Partitions:
        named: dict[str, set[int]] = {}
        for place, partition in tasks:
            named.setdefault(self._subtopologies[place].name, set()).add(partition)
        return named


def _each(tasks: Partitions, places: Mapping[str, int]) -> Iterator[_Task]:
    for name, partitions in tasks.items():
        place = places.get(name)
        if place is not None:
            for partition in partitions:
                yield place, partition


def _share(tasks: int, members: int) -> int:
    """Divide and round up. Java rounds negative quotients towards 0."""
    if members == 0:
        return 0
    quotient = abs(tasks) // abs(members)
    if (tasks < 0) != (members < 0):
        quotient = -quotient
    return quotient + (tasks - quotient * members > 0)
