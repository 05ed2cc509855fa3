"""The processes of a streams group that have each task, as known from its members' records.

Kafka's source: StreamsGroup.currentActiveTaskToProcessId and the like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.tasks import HeldTasks, Partitions

_Task = tuple[str, int]


class Processes:
    """The process of each active task, and those of each copy; the group owns it."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        self._active: dict[_Task, str] = {}
        self._standby: dict[_Task, set[str]] = {}
        self._warmup: dict[_Task, set[str]] = {}

    def active(self, subtopology: str, partition: int) -> str | None:
        """Return the process that has an active task, None if none has it."""
        return self._active.get((subtopology, partition))

    def shadows(self, process: str, subtopology: str, partition: int) -> bool:
        """Return whether a process has a standby or warm-up task."""
        task = subtopology, partition
        return process in self._standby.get(task, ()) or process in self._warmup.get(task, ())

    def add(self, member: StreamsMember) -> None:
        """Note the tasks of a member, and those that it must give up."""
        for held in (member.assigned, member.revoking):
            self._active.update(dict.fromkeys(_each(_active(held)), member.process_id))
            for noted, tasks in ((self._standby, held.standby), (self._warmup, held.warmup)):
                for task in _each(tasks):
                    noted.setdefault(task, set()).add(member.process_id)

    def remove(self, member: StreamsMember) -> None:
        """Remove the tasks of a member; an active task stays if another process has it by now."""
        process = member.process_id
        for held in (member.assigned, member.revoking):
            for task in _each(_active(held)):
                if self._active.get(task) == process:
                    del self._active[task]
            for noted, tasks in ((self._standby, held.standby), (self._warmup, held.warmup)):
                for task in _each(tasks):
                    processes = noted.get(task, set())
                    processes.discard(process)
                    if not processes:
                        noted.pop(task, None)


def _active(held: HeldTasks) -> Mapping[str, Mapping[int, int]]:
    return held.active


def _each(tasks: Partitions | Mapping[str, Mapping[int, int]]) -> Iterator[_Task]:
    for name, partitions in tasks.items():
        for partition in partitions:
            yield name, partition
