"""A member's next step towards its target assignment, while others still have some of its tasks.

    Stable --> UnrevokedTasks       while it must give up tasks; its epoch stays
           --> UnreleasedTasks      while other processes have tasks of its target
           --> Stable               at the target's epoch

A process has a task in one role only, so a member also waits for its own process.

Kafka's source: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.tables import in_number_order
from odradek.broker.groups.streams.member import MemberState, StreamsMember
from odradek.broker.groups.streams.processes import Processes
from odradek.broker.groups.streams.tasks import (
    NOTHING_HELD,
    HeldTasks,
    Partitions,
    Since,
    Tasks,
)
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode

IsTaken = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """The inputs of a member's step."""

    member: StreamsMember
    target: Tasks
    epoch: int
    processes: Processes
    # The tasks that the member reports; None if it does not.
    owned: Tasks | None

    def take(self) -> StreamsMember:
        """Return the member after its step; raises Refusal for a state that is not known."""
        member, owned = self.member, self.owned
        if member.is_reconciled_to(self.epoch):
            return member
        if member.state is MemberState.STABLE or member.state is MemberState.UNRELEASED_TASKS:
            return self._next(member.epoch)
        if member.state is MemberState.UNREVOKED_TASKS:
            if owned is None or owned.has_any_of(member.revoking):
                return member
            return self._next(member.epoch + 1)
        if owned is None or not owned.is_empty:
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its "
                "tasks and rejoin.",
            )
        return self._next(self.epoch)

    def _next(self, epoch: int) -> StreamsMember:
        member, had, own = self.member, self.member.assigned, self.member.process_id
        processes, at = self.processes, self.epoch
        active = _split(
            had.tasks.active,
            self.target.active,
            lambda *task: processes.active(*task) is not None or processes.shadows(own, *task),
        )

        def is_taken(name: str, partition: int) -> bool:
            return processes.active(name, partition) == own or processes.shadows(
                own, name, partition
            )

        standby = _split(had.standby, self.target.standby, is_taken)
        warmup = _split(had.warmup, self.target.warmup, is_taken)
        revoking = HeldTasks(
            _since(active.lost, had.active, at), standby.lost, warmup.lost
        )
        kept = HeldTasks(_since(active.kept, had.active, at), standby.kept, warmup.kept)
        given = HeldTasks(_since(active.given, {}, at), standby.given, warmup.given)
        if not revoking.is_empty and (self.owned is None or self.owned.has_any_of(revoking)):
            return replace(
                member.at(epoch),
                state=MemberState.UNREVOKED_TASKS,
                assigned=kept,
                revoking=revoking,
            )
        waits = active.waits or standby.waits or warmup.waits
        return replace(
            member.at(at),
            state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
            assigned=kept if given.is_empty else kept.merged(given),
            revoking=NOTHING_HELD,
        )


@dataclass(frozen=True, slots=True)
class _Split:
    """Tasks that stay, that go and that come; `waits` if others are not free yet."""

    kept: Partitions
    lost: Partitions
    given: Partitions
    waits: bool


def _split(had: Partitions, target: Partitions, is_taken: IsTaken) -> _Split:
    kept: dict[str, Set[int]] = {}
    lost: dict[str, Set[int]] = {}
    given: dict[str, Set[int]] = {}
    waits = False
    for name in dict.fromkeys((*target, *had)):
        present, wanted = had.get(name, frozenset()), target.get(name, frozenset())
        missing = wanted - present
        free = {partition for partition in missing if not is_taken(name, partition)}
        waits |= len(free) < len(missing)
        for kind, some in ((kept, present & wanted), (lost, present - wanted), (given, free)):
            if some:
                kind[name] = set(some)
    return _Split(kept, lost, given, waits)


def _since(tasks: Partitions, before: Since, epoch: int) -> Since:
    """Return active tasks with the epochs that they had before, others with a new one."""
    return {
        name: {
            one: before.get(name, {}).get(one, epoch) for one in in_number_order(sorted(some))
        }
        for name, some in tasks.items()
    }
