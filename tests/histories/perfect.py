"""A perfect cluster in memory: it plays drawn steps, and its clients record a sound history."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.histories.history import Place, key_of

LOCAL: Place = ("local", 0)
SHARED: Place = ("shared", 0)
TABLE: Place = ("table", 0)
PLACES = (LOCAL, SHARED, TABLE)
RETENTION_S = 30.0
_STEP_S = 1.0
_SHARE_GROUP = "sharers"


class Notes(Protocol):
    """The beginnings and ends of operations; see recording.Recorder."""

    def begin(self, kind: str, client: str, **members: object) -> int:
        """Note that an operation begins; return its id."""

    def end(self, number: int, outcome: str = "done", **members: object) -> None:
        """Note that an operation has ended."""


@dataclass
class Stored:
    """A record of a log, or a marker, whose value is empty."""

    value: str
    epoch: int
    transaction: int | None = None
    is_tombstone: bool = False
    is_acknowledged: bool = False
    time_s: float = 0.0


@dataclass
class Log:
    """The log of a partition; cleaned offsets are None."""

    stored: list[Stored | None] = field(default_factory=list)
    start: int = 0
    epoch: int = 0
    node: int = 1

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.stored)


class PerfectCluster:
    """Brokers without mistakes, and their clients."""

    def __init__(self, notes: Notes, source: random.Random, clock: list[float]) -> None:
        """`clock` has one item: the time, which only this object moves."""
        self._notes, self._source, self._clock = notes, source, clock
        self._logs = {place: Log() for place in PLACES}
        self._numbers: dict[str, int] = {}
        self._positions: dict[tuple[str, Place], int] = {}
        self._committed: dict[tuple[str, Place], int] = {}
        # By the id of its operation: None while it is open, then whether it was committed.
        self._transactions: dict[int, bool | None] = {}
        self._open: dict[str, int] = {}
        self._late: list[Callable[[], None]] = []
        self._shared: dict[int, str] = {}  # by offset: acquired, settled
        notes.begin("topic", "t", topic=SHARED[0], keeps_reads=True)
        notes.begin(
            "topic", "t", topic=TABLE[0], keeps_reads=True, compacted=True,
            delete_retention_s=RETENTION_S,
        )  # fmt: skip

    def play(self, steps: list[str]) -> None:
        """Play steps by their names, then end."""
        for name in steps:
            getattr(self, name)()
            self._clock[0] += _STEP_S
        self._end()

    # --- steps ---------------------------------------------------------------------------------

    def append(self) -> None:
        """Send a batch, of which the answer may come late or never."""
        producer = self._source.choice(["i0", "i1", "p0"])
        self._append(producer, self._source.choice(PLACES), None)

    def begin_transaction(self) -> None:
        """Begin a transaction, or send more in one."""
        producer = self._source.choice(["t0", "t1"])
        if producer not in self._open:
            number = self._notes.begin("transaction", producer, producer=producer, number=len(
                self._transactions
            ))  # fmt: skip
            self._open[producer] = number
            self._transactions[number] = None
        for place in PLACES:
            if self._source.random() < 0.6:
                self._append(producer, place, self._open[producer])

    def end_transaction(self) -> None:
        """End a transaction."""
        if self._open:
            self._settle(self._source.choice(sorted(self._open)))

    def read(self) -> None:
        """Read some records, from a reader's position on or from an earlier one."""
        name, place = self._source.choice(["r0", "r1"]), self._source.choice(PLACES)
        committed, log = name == "r0", self._logs[place]
        position = self._positions.get((name, place), log.start)
        if not log.start <= position <= log.end or self._source.random() < 0.2:
            position = log.start
        end = min(self._readable(place, committed), position + self._source.randint(1, 6))
        number = self._begin_at(name, "read", place, committed=committed)
        self._clock[0] += _STEP_S / 4
        known = {"epoch": log.epoch} if name == "r0" else {}  # the other one knows no epochs
        self._notes.end(
            number,
            records=self._records(place, position, end, committed),
            high_watermark=log.end,
            log_start=log.start,
            **known,
        )
        self._positions[name, place] = max(end, position)

    def scan(self) -> None:
        """Read a partition from its start."""
        self._scan("s0", self._source.choice(PLACES), self._source.random() < 0.5)

    def commit_offset(self) -> None:
        """Commit the position of a reader."""
        name, place = self._source.choice(["r0", "r1"]), self._source.choice(PLACES)
        position = self._positions.get((name, place))
        if position is None:
            return
        about: dict[str, Any] = {"group": name, "offset": position, "position": True}
        number = self._begin_at(name, "commit_offset", place, **about)
        fate = self._source.choice(["done", "done", "effect", "nothing"])
        if fate != "nothing":
            self._committed[name, place] = position
        if fate == "done":
            self._notes.end(number)

    def fetch_offset(self) -> None:
        """Fetch a committed offset."""
        name, place = self._source.choice(["r0", "r1"]), self._source.choice(PLACES)
        number = self._begin_at(name, "fetch_offset", place, group=name)
        self._notes.end(number, offset=self._committed.get((name, place), -1))

    def delete_records(self) -> None:
        """Delete the first records of a partition."""
        place = self._source.choice([LOCAL, SHARED])
        log = self._logs[place]
        offset = self._source.randint(log.start, log.end)
        number = self._begin_at("d0", "delete_records", place, offset=offset)
        fate = self._source.choice(["done", "effect", "nothing"])
        if fate != "nothing":
            log.start = offset
        if fate == "done":
            self._notes.end(number, log_start=log.start)

    def clean(self) -> None:
        """Remove records whose key has a later one, and tombstones that are old enough."""
        log, stable = self._logs[TABLE], self._readable(TABLE, True)
        latest: dict[bytes, int] = {}
        for offset, one in enumerate(log.stored[:stable]):
            if one is not None and one.value and self._counts(one):
                latest[key_of(one.value)] = offset
        for offset, one in enumerate(log.stored[:stable]):
            if one is None or not one.value:
                continue
            is_old = one.is_tombstone and one.time_s + RETENTION_S <= self._clock[0]
            if latest.get(key_of(one.value)) != offset or is_old:
                log.stored[offset] = None

    def move(self) -> None:
        """Give a partition another leader."""
        place = self._source.choice(PLACES)
        log = self._logs[place]
        log.epoch, log.node = log.epoch + 1, log.node % 3 + 1
        self._look(place)

    def lose_power(self) -> None:
        """Let the machine of the local log lose its power, and records without an answer."""
        log = self._logs[LOCAL]
        while log.stored and self._may_go(log.stored[-1]) and log.end > log.start:
            log.stored.pop()
        log.epoch += 1
        number = self._notes.begin("disrupt", "nemesis", name="lose power", node=log.node)
        self._notes.end(number)
        self._look(LOCAL)

    def wait(self) -> None:
        """Let time pass."""
        self._clock[0] += RETENTION_S / 2

    def answer(self) -> None:
        """Let late answers come."""
        while self._late:
            self._late.pop(0)()

    def share(self) -> None:
        """Deliver a record to a member of a share group, and acknowledge it."""
        log = self._logs[SHARED]
        free = [
            offset
            for offset, one in enumerate(log.stored)
            if one is not None and one.value and offset >= log.start
            and one.transaction is None and offset not in self._shared
        ]  # fmt: skip
        if not free:
            return
        member, offset = self._source.choice(["m0", "m1"]), free[0]
        kind = self._source.choice(["accept", "release", "reject"])
        number = self._begin_at(member, "share_fetch", SHARED, group=_SHARE_GROUP)
        one = log.stored[offset]
        assert one is not None
        self._notes.end(number, records=[[offset, 1, one.value]])
        about: dict[str, Any] = {"first": offset, "last": offset, "type": kind}
        number = self._begin_at(
            member, "share_acknowledge", SHARED, group=_SHARE_GROUP, **about
        )
        fate = self._source.choice(["done", "done", "effect", "undone"])
        if fate in ("done", "effect") and kind != "release":
            self._shared[offset] = "settled"
        if fate != "effect":
            self._notes.end(number, fate)

    # --- parts of steps ------------------------------------------------------------------------

    def _begin_at(self, client: str, kind: str, place: Place, **members: Any) -> int:
        self._clock[0] += _STEP_S / 4
        where = {"topic": place[0], "partition": place[1]}
        return self._notes.begin(kind, client, **where, **members)

    def _append(self, producer: str, place: Place, transaction: int | None) -> None:
        first = self._numbers.get(producer, 0)
        values = [f"{producer}-{first + at}" for at in range(self._source.randint(1, 3))]
        self._numbers[producer] = first + len(values)
        is_table = place == TABLE
        tombstones = [one for one in values if is_table and self._source.random() < 0.4]
        members: dict[str, Any] = {"values": values, "tombstones": tombstones}
        if producer == "p0":
            members["delivery"] = "once"
        if transaction is not None:
            members["transaction"] = transaction
        number = self._begin_at(producer, "append", place, **members)
        fates = ["done", "done", "late", "effect", "nothing", "undone"]
        fate = self._source.choice(fates) if transaction is None else "done"
        if fate == "undone":
            self._notes.end(number, "undone")
        if fate in ("nothing", "undone"):
            return
        log, now_s = self._logs[place], self._clock[0]
        stored = [
            Stored(
                one, log.epoch, transaction, one in tombstones, fate != "effect", time_s=now_s
            )
            for one in values
        ]
        offset = log.end
        log.stored += stored
        if fate == "done":
            self._notes.end(number, offset=offset)
        elif fate == "late":
            self._late.append(lambda: self._notes.end(number, offset=offset))

    def _settle(self, producer: str) -> None:
        transaction = self._open.pop(producer)
        fate = self._source.choice(["commit", "commit", "effect", "abort"])
        kind = "abort" if fate == "abort" else "commit"
        number = self._notes.begin(kind, producer, transaction=transaction)
        self._clock[0] += _STEP_S / 4
        self._transactions[transaction] = fate != "abort"
        for log in self._logs.values():
            if any(one and one.transaction == transaction for one in log.stored):
                log.stored.append(Stored("", log.epoch, is_acknowledged=True))
        if fate != "effect":
            self._notes.end(number)

    def _counts(self, one: Stored) -> bool:
        return one.transaction is None or self._transactions[one.transaction] is True

    @staticmethod
    def _may_go(one: Stored | None) -> bool:
        return one is not None and not one.is_acknowledged

    def _readable(self, place: Place, committed: bool) -> int:
        """Return the high watermark, or the last stable offset."""
        log = self._logs[place]
        unstable = (
            offset
            for offset, one in enumerate(log.stored)
            if one and one.transaction is not None and self._transactions[one.transaction] is None
        )
        return next(unstable, log.end) if committed else log.end

    def _records(self, place: Place, start: int, end: int, committed: bool) -> list[Any]:
        return [
            [offset, one.epoch, one.value]
            for offset, one in enumerate(self._logs[place].stored[:end])
            if offset >= start and one and one.value and (not committed or self._counts(one))
        ]

    def _scan(self, reader: str, place: Place, committed: bool, **members: object) -> None:
        number = self._begin_at(reader, "scan", place, committed=committed, **members)
        log, end = self._logs[place], self._readable(place, committed)
        records = self._records(place, log.start, end, committed)
        self._clock[0] += _STEP_S / 4
        self._notes.end(
            number, records=records, log_start=log.start, log_end=end,
            high_watermark=log.end, epoch=log.epoch,
        )  # fmt: skip

    def _look(self, place: Place) -> None:
        log = self._logs[place]
        number = self._notes.begin("metadata", "admin")
        leader = [place[0], f"id of {place[0]}", place[1], log.epoch, log.node]
        self._notes.end(number, leaders=[leader])

    def _end(self) -> None:
        self.answer()
        for producer in sorted(self._open):
            self._settle(producer)
        for place in PLACES:
            self._look(place)
            self._scan("final", place, True, final=True)
            self._scan("final", place, False, final=True)


STEPS = (
    "append", "append", "append", "begin_transaction", "end_transaction", "read", "read", "scan",
    "commit_offset", "fetch_offset", "delete_records", "clean", "move", "lose_power", "wait",
    "answer", "share", "share",
)  # fmt: skip
