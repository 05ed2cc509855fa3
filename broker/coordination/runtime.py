"""Runs the state machines of a coordinator, one for each partition of its internal topic.

The runtime finds the machine of a name, appends its records, resolves its answers, and keeps its
deadlines in one heap with one timer of the event loop. Everything runs on the event loop.

    coordinator -> machine.join -> [Persist] -> log.append ..durable..> machine.stored
       ^                                                                     |
       +--------------------------- future.set_result <- [Reply] <-----------+
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, TimerHandle
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, Union, cast

from odradek.broker.coordination import failures
from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.effects import (
    Act,
    Caller,
    CancelTimer,
    Effect,
    EndTransaction,
    Note,
    Persist,
    Reload,
    Reply,
    StartTimer,
    Timer,
)
from odradek.broker.coordination.loading import replay
from odradek.broker.coordination.loads import Loads
from odradek.broker.coordination.machine import Codec, Machine
from odradek.broker.coordination.seams import InternalTopic, Requester, Time
from odradek.broker.orders.java import partition_for
from odradek.protocol.errors import ErrorCode, ProtocolError

logger = logging.getLogger(__name__)

_MS_PER_S = 1_000
_YIELD_MS = 1
# The loop's clock has whole milliseconds, and the sum of two of them may be a hair above a third.
# A deadline that is so near has come: to wait for it would turn the loop for a millisecond.
_ROUNDING_S = 0.0006


M = TypeVar("M", bound=Machine)
T = TypeVar("T")
Answer: TypeAlias = Union[T, Awaitable[T]]  # noqa: UP007 (an alias of a type variable)


class _Appended(Generic[M]):
    """An append on its way to the disk, and the machine that continues after it."""

    __slots__ = ("future", "machine", "ticket")

    def __init__(self, future: Future[None], ticket: object, machine: M) -> None:
        self.future, self.ticket, self.machine = future, ticket, machine


class Runtime(Generic[M]):
    """Owns the machines, the answers that are due, and the deadlines.

    Until a partition is loaded, requests for its names get COORDINATOR_LOAD_IN_PROGRESS; after
    `close`, COORDINATOR_NOT_AVAILABLE. A partition whose log cannot be read is not served, nor is
    one that another broker leads: NOT_COORDINATOR.
    """

    def __init__(
        self,
        what: str,
        log: InternalTopic,
        codec: Codec,
        new_machine: Callable[[int], M],
        *,
        time: Time,
        act: Callable[[int, Any], None] = lambda partition, action: None,
    ) -> None:
        """`what` names the coordinated things in the broker's log.

        `act` carries out the actions that the machine of a partition asks for with `Act`.
        """
        self._what = what
        self._log, self._codec, self._new_machine = log, codec, new_machine
        self._clock, self._loop, self._act = time.clock, time.loop, act
        self._partition_count = log.partition_count
        self._machines: dict[int, M] = {}
        self._loads = Loads(what, time.loop, self._load, self._lacks)
        self._has_begun = False
        self._is_closed = False
        # Deadlines of machines, and, by name, of the work done in turn for all of them.
        self._deadlines: Deadlines[tuple[int, Timer] | str] = Deadlines()
        self._in_turn: dict[str, Callable[[], None]] = {}
        self._handle: TimerHandle | None = None
        self._armed_at = 0.0
        # By partition, the appends whose tickets have not come back yet, in the log's order.
        self._appended: defaultdict[int, deque[_Appended[M]]] = defaultdict(deque)

    # --- serving --------------------------------------------------------------------------

    @property
    def machines(self) -> Iterator[M]:
        """Iterate over the machines that serve."""
        return iter(self._machines.values())

    @property
    def problem(self) -> ErrorCode:
        """The reason why not all partitions can be asked yet, or any more; NONE when they can."""
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = sum(map(self._log.leads, range(self._partition_count)))
        if len(self._machines) + len(self._loads.failed) < led:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    @property
    def partition_count(self) -> int:
        """The number of partitions of the internal topic."""
        return self._partition_count

    def partition_of(self, name: str) -> int:
        """Return the partition that holds a name."""
        return partition_for(name, self._partition_count)

    def machine_of(self, name: str) -> M | ErrorCode:
        """Return the machine of a name, or the error that says why there is none."""
        return self.machine_at(self.partition_of(name))

    def machine_at(self, partition: int) -> M | ErrorCode:
        """Return the machine of a partition, or the error that says why there is none."""
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        machine = self._machines.get(partition)
        if machine is not None:
            return machine
        if partition in self._loads.failed or not self._log.leads(partition):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def caller(self, requester: Requester | None = None, *, fresh_id: str = "") -> Caller:
        """Return the Caller of a request, with a new future as its token."""
        token = self._loop.create_future()
        if requester is None:
            return Caller(token, api_version=0)
        return Caller(
            token,
            requester.api_version,
            requester.client_id,
            requester.client_host,
            fresh_id,
            requester.describable,
        )

    def run(
        self, name: str, effects: Iterable[Effect], caller: Caller, kind: type[T]
    ) -> Answer[T]:
        """Carry out effects; return the caller's answer, of type `kind`, or a future of it."""
        return self.run_at(self.partition_of(name), effects, caller, kind)

    def run_at(
        self, partition: int, effects: Iterable[Effect], caller: Caller, kind: type[T]
    ) -> Answer[T]:
        """Do the same as `run` for the machine of a partition."""
        self.perform(partition, effects)
        future = cast("Future[T]", caller.token)
        return future.result() if future.done() else future

    def perform(self, partition: int, effects: Iterable[Effect]) -> None:
        """Carry out effects in order, then the effects that follow from them."""
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            match effect:
                case Reply():
                    _resolve(effect)
                case StartTimer():
                    # At least a millisecond, so that `_fire` always comes to an end.
                    delay_s = max(effect.delay_ms, 1) / _MS_PER_S
                    self._deadlines.set((partition, effect.timer), self._loop.time() + delay_s)
                case CancelTimer():
                    self._deadlines.cancel((partition, effect.timer))
                case Persist():
                    queue.extend(self._persist(partition, effect))
                case EndTransaction(marker, ticket):
                    appended = self._log.append_marker(partition, marker)
                    queue.extend(self._follow(partition, appended, ticket))
                case Note():
                    _log(effect)
                case Act():
                    self._act(partition, effect.action)
                case Reload():
                    self._reload(partition)
        self._arm()

    def for_all(self, decide: Callable[[M], Iterable[Effect]]) -> None:
        """Ask every machine for a decision, and carry it out."""
        for partition, machine in list(self._machines.items()):
            self.perform(partition, decide(machine))

    def do_in_turn(
        self,
        name: str,
        interval_ms: Callable[[], int],
        decide: Callable[[M, int], Iterable[Effect]],
    ) -> None:
        """Call `decide` with every machine and the time, at intervals.

        One machine may have much to look at, so the machines take turns: between two of them the
        event loop answers requests.
        """
        waiting: list[int] = []  # Partitions whose turn comes in this round.

        def act() -> None:
            if not waiting:
                waiting.extend(self._machines)
            if waiting:
                partition = waiting.pop()
                machine = self._machines.get(partition)
                if machine is not None:
                    self.perform(partition, decide(machine, self._clock.now_ms()))
            schedule(_YIELD_MS if waiting else interval_ms())

        def schedule(delay_ms: int) -> None:
            self._deadlines.set(name, self._loop.time() + delay_ms / _MS_PER_S)
            self._arm()

        self._in_turn[name] = act
        schedule(interval_ms())

    def appending(self, partition: int) -> list[Future[None]]:
        """Return the appends to a partition that are on their way to the disk."""
        return [appended.future for appended in self._appended[partition]]

    # --- loading --------------------------------------------------------------------------

    async def load(self) -> None:
        """Replay every partition, and begin to serve each as soon as it is replayed."""
        self._has_begun = True
        for partition in range(self._partition_count):
            if self._log.leads(partition) and not self._loads.is_under_way(partition):
                await self._loads.load(partition)

    def follow(self) -> None:
        """Load the partitions that this broker leads now, and leave those that it has lost.

        Those that could not be loaded are tried again at once.
        """
        self._partition_count = self._log.partition_count
        for partition in range(self._partition_count):
            if not self._log.leads(partition):
                self._loads.forget(partition)
                self._unload(partition)
            elif (
                self._has_begun
                and self._lacks(partition)
                and not self._loads.is_under_way(partition)
            ):
                self._loads.start(partition)

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return self._loads.problems()

    def close(self) -> None:
        """End serving: answer all parked requests, and stop the timer."""
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._loads.close()
        now_ms = self._clock.now_ms()
        self.for_all(lambda machine: machine.unload(now_ms))

    async def _load(self, partition: int) -> None:
        begun = self.appending(partition)
        if begun:
            await asyncio.wait(begun)
        machine = self._new_machine(partition)
        await self._log.fetch(partition)
        await replay(self._what, self._log, self._codec, partition, machine)
        if self._is_closed or not self._log.leads(partition):
            return
        self._machines[partition] = machine
        self.perform(partition, machine.loaded(self._clock.now_ms()))

    def _reload(self, partition: int) -> None:
        """Discard a machine that is ahead of its log, and load another."""
        if partition not in self._machines:
            return  # A second append has failed.
        logger.error("reload %s partition=%d: its log refused records", self._what, partition)
        self._unload(partition)
        if self._log.leads(partition):
            self._loads.start(partition)

    def _lacks(self, partition: int) -> bool:
        return (
            not self._is_closed
            and self._log.leads(partition)
            and partition not in self._machines
        )

    def _unload(self, partition: int) -> None:
        machine = self._machines.pop(partition, None)
        if machine is None:
            return
        self.perform(partition, machine.unload(self._clock.now_ms()))
        for key in [key for key in self._deadlines if key[0] == partition]:
            self._deadlines.cancel(key)

    # --- carrying out ---------------------------------------------------------------------

    def _persist(self, partition: int, effect: Persist) -> Sequence[Effect]:
        """Append records; return the next effects if the append ends (or fails) at once."""
        machine = self._machines[partition]
        try:
            encoded = [self._codec.encode(record) for record in effect.records]
        except ProtocolError as error:
            # A name is too long for the record's format: newer requests can carry such names.
            logger.warning("refused records partition=%d error=%s", partition, error)
            return machine.stored(
                effect.ticket, ErrorCode.UNKNOWN_SERVER_ERROR, self._clock.now_ms()
            )
        appended = self._log.append(
            partition, encoded, effect.producer, is_awaited=effect.is_awaited
        )
        return self._follow(partition, appended, effect.ticket)

    def _follow(
        self, partition: int, appended: Future[None], ticket: object
    ) -> Sequence[Effect]:
        """Return the next effects of a finished append; an unfinished one waits in log order."""
        machine, queue = self._machines[partition], self._appended[partition]
        if appended.done() and not queue:
            return machine.stored(ticket, failures.outcome(appended), self._clock.now_ms())
        queue.append(_Appended(appended, ticket, machine))
        appended.add_done_callback(partial(self._go_on, partition))
        return []

    def _go_on(self, partition: int, _: Future[None]) -> None:
        """Continue after appends that have ended; a later append waits for earlier ones."""
        queue = self._appended[partition]
        while queue and queue[0].future.done():
            ended = queue.popleft()
            outcome = failures.outcome(ended.future)
            effects = ended.machine.stored(ended.ticket, outcome, self._clock.now_ms())
            if ended.machine is not self._machines.get(partition):
                # The machine was discarded: it answers its waiting requests, and does no more.
                effects = [effect for effect in effects if isinstance(effect, Reply)]
            self.perform(partition, effects)

    def _arm(self) -> None:
        """Schedule `_fire` for the first deadline."""
        at = self._deadlines.next()
        if at is None or self._is_closed:
            return
        if self._handle is not None:
            if self._armed_at <= at:
                return
            self._handle.cancel()
        self._armed_at = at
        self._handle = self._loop.call_later(max(at - self._loop.time(), 0.0), self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time() + _ROUNDING_S
        try:
            while (fired := self._deadlines.pop(now)) is not None:
                self._fire_one(fired)
        finally:
            self._arm()

    def _fire_one(self, fired: tuple[int, Timer] | str) -> None:
        if isinstance(fired, str):
            self._in_turn[fired]()
            return
        partition, timer = fired
        machine = self._machines.get(partition)
        if machine is not None:
            self.perform(partition, machine.timer_fired(timer, self._clock.now_ms()))


def _log(note: Note) -> None:
    logger.log(logging.WARNING if note.is_warning else logging.INFO, "%s", note.text)


def _resolve(reply: Reply) -> None:
    future = cast("Future[Any]", reply.token)
    if not future.done():  # A closed connection has cancelled the future.
        future.set_result(reply.response)
