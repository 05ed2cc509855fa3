"""The tasks of a member: partitions of subtopologies, by role.

An active task processes records; a standby task keeps a copy of the state of an active one; a
warm-up task prepares one. Kafka 4.3 assigns no warm-up tasks, but stores and describes them.

Kafka's sources: TasksTuple, TasksTupleWithEpochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import field
from typing import Protocol, TypeVar

from odradek.broker.groups.modern.tables import Table, in_number_order
from odradek.broker.orders.java import copied_capacity, int_hash, utf16
from odradek.dataclass import dataclass
from odradek.protocol.messages.streams_group_records import (
    StreamsGroupTargetAssignmentMemberValue,
    TargetTaskIds,
    TaskIds,
)

T = TypeVar("T")

Partitions = Mapping[str, Set[int]]
"""Partitions by subtopology."""

Since = Mapping[str, Mapping[int, int]]
"""Partitions by subtopology in Java's order, each with the epoch at which the member got it."""


class TaskIdsLike(Protocol):
    """Tasks of one subtopology, in any message."""

    subtopology_id: str
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by role; no subtopology has an empty set."""

    active: Partitions = field(default_factory=dict)
    standby: Partitions = field(default_factory=dict)
    warmup: Partitions = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, held: HeldTasks) -> bool:
        """Return whether a task is in both, in the same role."""
        return (
            _meet(self.active, held.tasks.active)
            or _meet(self.standby, held.standby)
            or _meet(self.warmup, held.warmup)
        )

    def stored(self) -> StreamsGroupTargetAssignmentMemberValue:
        """Return the record of a member's target."""
        return StreamsGroupTargetAssignmentMemberValue(
            active_tasks=listed(TargetTaskIds, self.active),
            standby_tasks=listed(TargetTaskIds, self.standby),
            warmup_tasks=listed(TargetTaskIds, self.warmup),
        )


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that a member has or must give up; no subtopology has an empty set."""

    active: Since = field(default_factory=dict)
    standby: Partitions = field(default_factory=dict)
    warmup: Partitions = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> Tasks:
        """The same tasks, without the epochs."""
        active = {name: some.keys() for name, some in self.active.items()}
        return Tasks(active, self.standby, self.warmup)

    def merged(self, other: HeldTasks) -> HeldTasks:
        """Return the tasks of both, which have none in common; Java's maps give their order."""
        active = {}
        for name in dict.fromkeys((*self.active, *other.active)):
            kept, given = self.active.get(name, {}), other.active.get(name, {})
            capacity = copied_capacity(len(kept) or len(given))
            ordered = Table(int_hash, (*kept, *given), capacity=capacity)
            active[name] = {one: kept[one] if one in kept else given[one] for one in ordered}
        return HeldTasks(
            active, _union(self.standby, other.standby), _union(self.warmup, other.warmup)
        )


NO_TASKS = Tasks()
NOTHING_HELD = HeldTasks()


def by_subtopology(ids: Iterable[TaskIdsLike]) -> Partitions:
    """Read the tasks of a message; a subtopology that comes twice has the tasks of both."""
    found: dict[str, set[int]] = {}
    for one in ids:
        found.setdefault(one.subtopology_id, set()).update(one.partitions)
    return found


def read_targets(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    """Read the record of a member's target."""
    return Tasks(
        by_subtopology(value.active_tasks),
        by_subtopology(value.standby_tasks),
        by_subtopology(value.warmup_tasks),
    )


def read_held(
    active: Iterable[TaskIds],
    standby: Iterable[TaskIds],
    warmup: Iterable[TaskIds],
    member_epoch: int,
) -> HeldTasks:
    """Read tasks of a member's record; those without epochs get the member's."""
    since: dict[str, Mapping[int, int]] = {}
    for one in active:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        by_partition = dict(zip(one.partitions, epochs, strict=True))
        since[one.subtopology_id] = {
            partition: by_partition[partition] for partition in in_number_order(by_partition)
        }
    return HeldTasks(since, by_subtopology(standby), by_subtopology(warmup))


def stored_since(tasks: Since) -> list[TaskIds]:
    """Return active tasks for a member's record."""
    return [
        TaskIds(
            subtopology_id=name,
            partitions=sorted(tasks[name]),
            assignment_epochs=[epoch for _, epoch in sorted(tasks[name].items())],
        )
        for name in sorted(tasks, key=utf16)
    ]


def listed(make: Callable[..., T], tasks: Partitions) -> list[T]:
    """Return tasks as a message has them; `make` makes its tasks of one subtopology."""
    return [
        make(subtopology_id=name, partitions=sorted(tasks[name]))
        for name in sorted(tasks, key=utf16)
    ]


def _meet(one: Partitions, other: Partitions) -> bool:
    return any(name in other and not some.isdisjoint(other[name]) for name, some in one.items())


def _union(one: Partitions, other: Partitions) -> Partitions:
    made = {name: set(some) for name, some in one.items()}
    for name, some in other.items():
        made.setdefault(name, set()).update(some)
    return made
