"""The state of the model: the catalog, the bucket, the brokers, and the truth.

Names are those of the code. A record is a batch of its own, and the batches of a partition come
from one idempotent producer, by number. All values are tuples: immutable, and hashed fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NONE = -1
Key = tuple[str, int, int]
"""The kind of an object ("wal", "segments"), its session, and its number."""
Batches = tuple[tuple[int, int], ...]
"""Batches of a partition: offsets and numbers."""


class Bounds(NamedTuple):
    """The size of a world, and how often each trouble may come."""

    brokers: int = 2
    partitions: int = 1
    records: int = 2
    in_flight: int = 2
    # Of partition 0, the records that are in a sealed segment from the begin on.
    stored: int = 0
    # The bodies of entries: in the catalog (inline), in the bucket (object), or either (both).
    bodies: str = "inline"
    crashes: int = 0
    expiries: int = 0
    # Answers of the catalog and the bucket that are lost; PUTs that take effect late.
    lost: int = 0
    late: int = 0
    # Uploads that are slow: the catalog has the entries instead.
    slow: int = 0
    handovers: int = 0
    stores: int = 0
    cleanings: int = 0
    # Whether the WAL is freed and objects are deleted, jobs clean, orphans are collected.
    has_garbage: bool = True
    has_jobs: bool = False
    has_orphans: bool = False
    rollbacks: int = 0


class Budget(NamedTuple):
    """The troubles and works that may still come."""

    crashes: int
    expiries: int
    lost: int
    late: int
    slow: int
    handovers: int
    stores: int
    cleanings: int
    rollbacks: int


class Session(NamedTuple):
    """A row of `session`; `is_live` until the lease ends by the broker's own clock."""

    broker: int
    is_open: bool = True
    next_sequence: int = 0
    is_live: bool = True


class Place(NamedTuple):
    """A row of `partition`."""

    leader: int
    epoch: int = 0
    stored: int = 0


class Run(NamedTuple):
    """The batches of one partition in an entry."""

    partition: int
    base: int
    batches: tuple[int, ...]
    epoch: int

    @property
    def end(self) -> int:
        return self.base + len(self.batches)


class Entry(NamedTuple):
    """An entry of the WAL; a broker has it `is_ready` once its object is there."""

    session: int
    sequence: int
    runs: tuple[Run, ...]
    is_object: bool
    is_ready: bool = False

    @property
    def key(self) -> Key:
        return "wal", self.session, self.sequence


class Row(NamedTuple):
    """A row of `segment`, with the contents of its object.

    `last` is the producer's last batch: at the end of a sealed segment, at the begin of another.
    """

    partition: int
    base: int
    end: int
    key: Key
    batches: Batches
    last: int
    is_open: bool


class Catalog(NamedTuple):
    """The database. `doubt` is a handover whose commit is under way: partition, from, to."""

    sessions: tuple[Session, ...]
    places: tuple[Place, ...]
    entries: tuple[Entry, ...] = ()
    rows: tuple[Row, ...] = ()
    # Garbage: keys, and whether the delay has passed.
    notes: frozenset[tuple[Key, bool]] = frozenset()
    doubt: tuple[int, int, int] | None = None
    # The lease of a job that cleans: its session, or NONE; and whether it is answered.
    lease: int = NONE
    is_answered: bool = False


class Log(NamedTuple):
    """A partition's log in the memory of its leader."""

    epoch: int
    batches: Batches
    end: int
    high_watermark: int
    last: int  # the producer's last batch
    active: int  # the base offset of the active segment
    rows: tuple[Row, ...]  # the leader's view of the catalog's rows
    stored: int
    built: int  # its end when it was opened
    target: int = NONE  # the broker that is to lead it; it is not served then


class Opening(NamedTuple):
    """A log that is being built: its rows were read, the WAL was not."""

    epoch: int
    stored: int
    rows: tuple[Row, ...]


class Change(NamedTuple):
    """A change of rows that the leader makes or repeats; without `old` it adds a segment."""

    session: int
    epoch: int
    row: Row
    old: tuple[Row, ...]
    is_leased: bool = False
    is_in_doubt: bool = False


class Broker(NamedTuple):
    """A process; `session` is NONE while it has none."""

    session: int = NONE
    logs: tuple[Log | None, ...] = ()
    openings: tuple[Opening | None, ...] = ()
    unsealed: tuple[Run, ...] = ()
    sealed: tuple[Entry, ...] = ()
    next_sequence: int = 0
    # The entries of a commit that got no answer: it is repeated with the same ones.
    in_doubt: int = 0
    # The partition of a handover whose outcome is not known.
    handing: int = NONE
    number: int = 0  # of the next object of segments
    change: Change | None = None
    # Segments that were cleaned, and wait for their exchange.
    cleaned: Change | None = None


class World(NamedTuple):
    """All of it. The fields from `acked` on are seen by clients, or by nobody."""

    left: Budget
    catalog: Catalog
    brokers: tuple[Broker, ...]
    bucket: frozenset[Key] = frozenset()
    # Objects whose PUT got no answer, and takes effect later.
    late: frozenset[Key] = frozenset()
    doomed: Key | None = None
    # Of each partition: the number of batches that the producer knows as stored.
    acked: tuple[int, ...] = ()
    # Of each partition: all that was ever committed, by offset: batch, epoch, session.
    truth: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    # Offsets that an exchange has removed, since a later record has the same key.
    removed: frozenset[tuple[int, int]] = frozenset()
    problem: str | None = None


def first_world(bounds: Bounds) -> World:
    """Return a cluster whose partitions are led by the first brokers."""
    count = bounds.partitions
    led = [number % bounds.brokers for number in range(count)]
    up = max(led) + 1
    nothing = (None,) * count
    brokers = tuple(
        Broker(one if one < up else NONE, nothing, nothing) for one in range(bounds.brokers)
    )
    world = World(
        Budget(**{name: getattr(bounds, name) for name in Budget._fields}),
        Catalog(tuple(map(Session, range(up))), tuple(map(Place, led))),
        brokers,
        acked=(0,) * count,
        truth=((),) * count,
    )
    return _with_segment(world, bounds.stored) if bounds.stored else world


def _with_segment(world: World, end: int) -> World:
    """Return a world in which partition 0 has records, all of them stored by its leader."""
    batches = tuple((at, at) for at in range(end))
    row = Row(0, 0, end, ("segments", 0, 0), batches, end - 1, False)
    log = Log(0, batches, end, end, end - 1, end, (row,), end, end)
    world = with_log(with_broker(world, 0, number=1), 0, 0, log)
    place = world.catalog.places[0]._replace(stored=end)
    world = with_catalog(world, rows=(row,), places=replaced(world.catalog.places, 0, place))
    return world._replace(
        bucket=frozenset([row.key]),
        acked=replaced(world.acked, 0, end),
        truth=replaced(world.truth, 0, tuple((at, 0, 0) for at in range(end))),
    )


def replaced(items: tuple, at: int, one: object) -> tuple:  # type: ignore[type-arg]
    """Return a tuple with another item at a place."""
    return (*items[:at], one, *items[at + 1 :])


def with_broker(world: World, number: int, /, **fields: Any) -> World:
    """Return a world in which a broker has other fields."""
    broker = world.brokers[number]._replace(**fields)
    return world._replace(brokers=replaced(world.brokers, number, broker))


def with_log(world: World, number: int, partition: int, log: Log | None) -> World:
    """Return a world in which a broker has another log, or none."""
    logs = replaced(world.brokers[number].logs, partition, log)
    return with_broker(world, number, logs=logs)


def with_catalog(world: World, /, **fields: Any) -> World:
    """Return a world whose catalog has other fields."""
    return world._replace(catalog=world.catalog._replace(**fields))


def spend(world: World, name: str) -> World:
    """Return a world in which a trouble has come once more."""
    left = world.left
    return world._replace(left=left._replace(**{name: getattr(left, name) - 1}))


def has_open_session(world: World, number: int) -> bool:
    """Return whether the catalog has a broker's session as open."""
    session = world.brokers[number].session
    return session != NONE and world.catalog.sessions[session].is_open


def has_uncommitted(broker: Broker, partition: int) -> bool:
    """Return whether batches of a partition wait for their commit."""
    runs = [*broker.unsealed, *(run for entry in broker.sealed for run in entry.runs)]
    return any(run.partition == partition for run in runs)


def named_keys(catalog: Catalog) -> frozenset[Key]:
    """Return the objects that rows name."""
    return frozenset(
        [
            *(row.key for row in catalog.rows),
            *(one.key for one in catalog.entries if one.is_object),
        ]
    )


def noted(catalog: Catalog, keys: list[Key]) -> frozenset[tuple[Key, bool]]:
    """Return the garbage with fresh notes on keys."""
    if not keys:
        return catalog.notes
    others = frozenset(one for one in catalog.notes if one[0] not in keys)
    return others | {(key, False) for key in keys}
