"""Sessions, leaders, takeovers and handovers.

A broker that is paused takes no step while others do: each interleaving has its pauses. One that
is paused beyond its lease finds its session closed when it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.guards import Rules
from tests.model.states import (
    NONE,
    Bounds,
    Broker,
    Log,
    Opening,
    Session,
    World,
    has_open_session,
    has_uncommitted,
    replaced,
    spend,
    with_broker,
    with_catalog,
    with_log,
)

Steps = Iterator[tuple[str, World]]


class Sessions:
    """Actions of brokers as members of the cluster."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._bounds, self._rules = bounds, rules

    # --- sessions -------------------------------------------------------------------------------

    def join(self, world: World) -> Steps:
        """A broker opens a session, and leads partitions that have no leader."""
        if world.catalog.doubt is not None:
            return  # it has the lock of all changes
        for number, broker in enumerate(world.brokers):
            if broker.session != NONE:
                continue
            after = world
            for epoch, session in enumerate(world.catalog.sessions):
                if session.broker == number and session.is_open:
                    after = self._close(after, epoch)
            places = tuple(
                one._replace(leader=number) if one.leader == NONE else one
                for one in after.catalog.places
            )
            sessions = after.catalog.sessions
            after = with_catalog(after, sessions=(*sessions, Session(number)), places=places)
            after = with_broker(after, number, session=len(sessions))
            yield f"broker {number} opens session {len(sessions)}", after
            return  # those that have no session are alike

    def crash(self, world: World) -> Steps:
        """A process ends; its memory and its disk are lost."""
        if world.left.crashes:
            for number, broker in enumerate(world.brokers):
                if broker.session != NONE:
                    after = self._fresh(spend(world, "crashes"), number)
                    yield f"broker {number} crashes", after

    def end_lease(self, world: World) -> Steps:
        """A lease ends by the broker's own clock, since it was not extended."""
        if world.left.expiries:
            for epoch, session in enumerate(world.catalog.sessions):
                if session.is_open and session.is_live:
                    sessions = replaced(
                        world.catalog.sessions, epoch, session._replace(is_live=False)
                    )
                    after = with_catalog(spend(world, "expiries"), sessions=sessions)
                    yield f"the lease of broker {session.broker} ends", after

    def renew(self, world: World) -> Steps:
        """A broker extends a lease that had ended: nobody has closed the session."""
        for number, broker in enumerate(world.brokers):
            if has_open_session(world, number):
                session = world.catalog.sessions[broker.session]
                if not session.is_live:
                    sessions = replaced(
                        world.catalog.sessions, broker.session, session._replace(is_live=True)
                    )
                    yield (
                        f"broker {number} extends its lease",
                        with_catalog(world, sessions=sessions),
                    )

    def expel(self, world: World) -> Steps:
        """Another broker closes a session that is silent, and has other leaders chosen."""
        if world.catalog.doubt is not None:
            return
        for epoch, session in enumerate(world.catalog.sessions):
            if not session.is_open:
                continue
            is_gone = world.brokers[session.broker].session != epoch
            if session.is_live and not is_gone and self._rules.clocks_run_alike:
                continue
            if session.is_live and not is_gone and not world.left.expiries:
                continue  # as often as leases end
            others = [
                number
                for number in range(len(world.brokers))
                if number != session.broker and has_open_session(world, number)
            ]
            if others:
                after = self._close(world, epoch)
                if session.is_live and not is_gone:
                    after = spend(after, "expiries")
                line = f"broker {others[0]} closes session {epoch} of broker {session.broker}"
                yield line + _leaders(world, after), after

    def notice(self, world: World) -> Steps:
        """A broker finds its session closed: its logs have ended. A cleaner's thread goes on."""
        for number, broker in enumerate(world.brokers):
            if broker.session != NONE and not has_open_session(world, number):
                after = self._fresh(world, number)
                after = with_broker(after, number, cleaned=broker.cleaned)
                yield f"broker {number} finds its session {broker.session} closed", after

    def _fresh(self, world: World, number: int) -> World:
        nothing = (None,) * self._bounds.partitions
        return world._replace(
            brokers=replaced(world.brokers, number, Broker(NONE, nothing, nothing))
        )

    def _close(self, world: World, epoch: int) -> World:
        """Close a session; let others lead its partitions: those that lead the fewest."""
        catalog = world.catalog
        closed = catalog.sessions[epoch]
        sessions = replaced(catalog.sessions, epoch, closed._replace(is_open=False))
        world = with_catalog(world, sessions=sessions)
        alive = [one.broker for one in sessions if one.is_open and one.broker != closed.broker]
        places = list(catalog.places)
        for at, place in enumerate(places):
            if place.leader == closed.broker:
                led = [one.leader for one in places]
                leader = min(alive, key=lambda one: (led.count(one), one), default=NONE)
                raised = place.epoch + self._rules.epoch_rises_with_end
                places[at] = place._replace(leader=leader, epoch=raised)
        return with_catalog(world, places=tuple(places))

    # --- logs -----------------------------------------------------------------------------------

    def read_rows(self, world: World) -> Steps:
        """A broker that follows the catalog to its leadership reads the rows of segments."""
        for number, broker in enumerate(world.brokers):
            if broker.session == NONE:
                continue
            for partition, place in enumerate(world.catalog.places):
                if (
                    place.leader != number
                    or broker.logs[partition] is not None
                    or broker.openings[partition] is not None
                    or broker.handing == partition
                    or has_uncommitted(broker, partition)  # SharedLogs._build waits for it
                ):
                    continue
                change = broker.change
                is_changing = change is not None and change.row.partition == partition
                if is_changing and self._rules.opens_after_changes:
                    continue
                rows = tuple(one for one in world.catalog.rows if one.partition == partition)
                opening = Opening(place.epoch, place.stored, rows)
                openings = replaced(broker.openings, partition, opening)
                line = f"broker {number} reads the rows of partition {partition}, to lead it"
                yield line, with_broker(world, number, openings=openings)

    def read_wal(self, world: World) -> Steps:
        """A broker builds a log of its segments, and of the entries of the WAL since."""
        for number, broker in enumerate(world.brokers):
            for partition, opening in enumerate(broker.openings):
                if opening is not None:
                    after = self._built(world, number, partition, opening)
                    yield f"broker {number} builds the log of partition {partition}", after

    def _built(self, world: World, number: int, partition: int, opening: Opening) -> World:
        catalog, broker = world.catalog, world.brokers[number]
        batches: list[tuple[int, int]] = []
        last, end = NONE, 0
        missing = [row.key for row in opening.rows if row.key not in world.bucket]
        for row in opening.rows:
            batches += row.batches
            end = row.end
            last = (
                max([row.last, *(batch for _, batch in row.batches)]) if row.is_open else row.last
            )
        for entry in catalog.entries:
            for run in entry.runs:
                if run.partition != partition or run.end <= max(end, 0):
                    continue
                if entry.is_object and entry.key not in world.bucket:
                    missing.append(entry.key)
                if run.base > end:
                    missing.append(entry.key)
                fresh = list(enumerate(run.batches, run.base))[max(end - run.base, 0) :]
                batches += fresh
                end, last = run.end, fresh[-1][1]
        openings = replaced(broker.openings, partition, None)
        world = with_broker(world, number, openings=openings)
        if missing:
            if not has_open_session(world, number):
                return world  # it is tried again until the session is found closed
            return world._replace(problem=f"partition {partition} cannot be opened: {missing[0]}")
        if not self._rules.producers_come_back:
            last = NONE
        # Builder._begin appends the open rows again, to the segment of the first one.
        opened = (row.base for row in opening.rows if row.is_open)
        active = next(opened, opening.rows[-1].end if opening.rows else 0)
        log = Log(
            opening.epoch, tuple(batches), end, end, last, active,
            opening.rows, opening.stored, end,
        )  # fmt: skip
        return with_log(world, number, partition, log)

    # --- handovers ------------------------------------------------------------------------------

    def give_up(self, world: World) -> Steps:
        """A leader stops serving a partition that another broker is to lead."""
        if world.left.handovers and not world.catalog.doubt:
            for number, broker in enumerate(world.brokers):
                for partition, log in enumerate(broker.logs):
                    if log is None or log.target != NONE or broker.handing != NONE:
                        continue
                    for target in range(len(world.brokers)):
                        if target != number and has_open_session(world, target):
                            after = with_log(
                                spend(world, "handovers"),
                                number,
                                partition,
                                log._replace(target=target),
                            )
                            yield (
                                f"broker {number} gives partition {partition} up for {target}",
                                after,
                            )

    def hand_over(self, world: World) -> Steps:
        """A leader closes a log, and names its next leader in the catalog."""
        if world.catalog.doubt is not None:
            return
        for number, broker in enumerate(world.brokers):
            for partition, log in enumerate(broker.logs):
                if log is None or log.target == NONE or not has_open_session(world, number):
                    continue
                if self._rules.closes_before_handover and has_uncommitted(broker, partition):
                    continue
                line = f"broker {number} hands partition {partition} over to {log.target}"
                closed = with_log(world, number, partition, None)
                yield line, self._handed(closed, partition, number, log.target)
                if world.left.lost:
                    lost = spend(with_broker(closed, number, handing=partition), "lost")
                    doubt = (partition, number, log.target)
                    yield f"{line}: the answer is lost", self._handed(lost, *doubt)
                    yield f"{line}: it has no answer yet", with_catalog(lost, doubt=doubt)

    def resolve(self, world: World) -> Steps:
        """The database ends a transaction whose broker does not wait any more."""
        if world.catalog.doubt is not None:
            after = with_catalog(world, doubt=None)
            yield "the catalog rolls the handover back", after
            yield "the catalog commits the handover", self._handed(after, *world.catalog.doubt)

    def learn(self, world: World) -> Steps:
        """A broker learns the outcome of a handover, and follows it."""
        for number, broker in enumerate(world.brokers):
            if broker.handing != NONE and (
                world.catalog.doubt is None or not self._rules.waits_for_outcome
            ):
                line = f"broker {number} goes on with partition {broker.handing}"
                yield line, with_broker(world, number, handing=NONE)

    def _handed(self, world: World, partition: int, number: int, target: int) -> World:
        place = world.catalog.places[partition]
        if place.leader != number or not has_open_session(world, target):
            return world  # it stays, and its leader opens it again
        raised = place.epoch + self._rules.epoch_rises_with_handover
        place = place._replace(leader=target, epoch=raised)
        return with_catalog(world, places=replaced(world.catalog.places, partition, place))


def _leaders(before: World, after: World) -> str:
    changed = [
        f"; {new.leader} leads partition {at} in epoch {new.epoch}"
        for at, (old, new) in enumerate(
            zip(before.catalog.places, after.catalog.places, strict=True)
        )
        if old != new
    ]
    return "".join(changed)
