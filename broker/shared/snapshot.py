"""The logs of shared topics at one moment, for readers beside the brokers.

1. A snapshot is one transaction of the catalog: rows of segments, then the committed runs of the
   WAL behind them. So it has all records that consumers may read, up to the high watermarks.
2. The objects that it names stay for odradek.object.delete.delay.ms after brokers have ceased to
   use them. Records that only the catalog has are in the snapshot itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.schema import require_current
from odradek.broker.catalog.segment_rows import SegmentRow, StoredLog, segments_of
from odradek.broker.catalog.wal_rows import EntryRow, entry_parts, entry_rows, object_key
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.configs import ALL_BROKERS
from odradek.broker.metadata.members import ANY_HOST
from odradek.broker.metadata.statements import Connection, Statements
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.packing import packed_segment
from odradek.broker.wal.entries import DamagedEntry, Run, extent_of, read_wanted
from odradek.config.catalog import URL as CATALOG_URL
from odradek.config.catalog import CatalogConfig, require_file
from odradek.config.effective import resolve_apart, resolve_topic
from odradek.config.errors import ConfigError
from odradek.config.layers import static_layer
from odradek.config.object_store import URL, ObjectStoreConfig
from odradek.config.resolution import Layer, Source
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.objects.packs import DamagedPack, PackedSegment
from odradek.storage.objects.store import ObjectStore, ObjectStoreError
from odradek.storage.segment import INDEX, KEYS, LOG, SNAPSHOT

T = TypeVar("T")

_ENTRIES_AT_ONCE = 512
# Runs of the WAL that are read together have about so many bytes.
_GROUP_BYTES = 32 << 20


class SnapshotError(Exception):
    """The catalog or the object store cannot be read; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class SharedLogs:
    """Where the logs of shared topics are: the address of the catalog, and the object store."""

    catalog: str = field(repr=False)  # it may have a password
    store: ObjectStoreConfig

    @property
    def store_url(self) -> str:
        """The address of the object store."""
        return self.store.odradek_object_store_url or ""


class Piece(NamedTuple):
    """Consecutive bytes of a log: of an object, or themselves if the catalog has them."""

    key: str
    position: int
    size_bytes: int
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class LogPart:
    """Consecutive batches of a partition, some of which may begin before the first offset.

    Parts with the same group have pieces of the same objects. `max_timestamp` is None if it is
    not known.
    """

    base_offset: int
    first_offset: int
    next_offset: int
    pieces: tuple[Piece, ...]
    group: str
    max_timestamp: int | None = None
    index: Piece | None = None  # those of a sealed segment
    keys: Piece | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the batches."""
        return sum(one.size_bytes for one in self.pieces)


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The log of a partition up to its high watermark, in parts by their offsets.

    `producers` is the snapshot of its producers at an offset, if there were any.
    """

    topic: str
    number: int
    log_start_offset: int
    high_watermark: int
    parts: tuple[LogPart, ...]
    producers: Piece | None
    producers_offset: int


@dataclass(slots=True)
class Snapshot:
    """The wanted logs by topic and number, all shared partitions, and the local topics."""

    logs: list[LogSnapshot] = field(default_factory=list)
    partitions: set[tuple[str, int]] = field(default_factory=set)
    local_topics: set[str] = field(default_factory=set)


def shared_logs(
    environment: Mapping[str, str], settings: Mapping[str, str], file: Path | None = None
) -> SharedLogs:
    """Find the catalog and the object store by settings of a broker.

    They override those of the environment, which override those of the file. Raises ConfigError.
    """
    layers = _layers(environment, settings, file)
    catalog = resolve_apart(CatalogConfig, layers).odradek_catalog_url
    if not catalog:
        raise ConfigError(f"give {CATALOG_URL}, as the brokers have it")
    require_file(catalog)
    store = resolve_apart(ObjectStoreConfig, layers)
    if not store.odradek_object_store_url:
        raise ConfigError(f"give {URL}, as the brokers have it")
    return SharedLogs(catalog, store)


def read_topic_config(
    logs: SharedLogs, topic: str, environment: Mapping[str, str], file: Path | None = None
) -> TopicConfig:
    """Read the config of a topic: its own settings, and the brokers' of catalog and file.

    Raises ConfigError and SnapshotError.
    """

    def read(connection: Connection) -> TopicConfig:
        statements = Statements(connection)
        overrides = statements.configs_of(Resource(ResourceType.TOPIC, topic))
        dynamic = statements.configs_of(Resource(ResourceType.BROKER, ALL_BROKERS))
        store = {URL: logs.store_url}
        of_brokers = Layer(Source.DYNAMIC_DEFAULT_BROKER, dynamic)
        return resolve_topic(
            overrides, [of_brokers, *_layers(environment, store, file)]
        ).config

    return in_transaction(logs, read)


def _layers(
    environment: Mapping[str, str], settings: Mapping[str, str], file: Path | None
) -> list[Layer]:
    given = Layer(Source.STATIC_BROKER, settings, dict.fromkeys(settings, "option"))
    return [given, static_layer(file, environment)]


def read_snapshot(logs: SharedLogs, wants: Callable[[str, int], bool]) -> Snapshot:
    """Read the logs of the partitions that are wanted, by topic and number.

    Raises SnapshotError.
    """
    return in_transaction(logs, lambda connection: _read(connection, wants))


def in_transaction(logs: SharedLogs, work: Callable[[Connection], T]) -> T:
    """Read the catalog at one moment. Raises SnapshotError."""
    engine = open_engine(logs.catalog)

    def read(connection: Connection) -> T:
        require_current(engine, connection)
        return work(connection)

    try:
        return engine.read(read)
    except (MetadataError, DamagedEntry, DamagedPack) as error:
        raise SnapshotError(str(error)) from error
    finally:
        engine.close()


@lru_cache(maxsize=4)
def open_store(config: ObjectStoreConfig) -> ObjectStore:
    """Return the object store, which this process opens once. Raises SnapshotError."""
    try:
        return Bucket(config).store
    except ObjectStoreError as error:
        raise SnapshotError(str(error)) from error


def all_partitions(connection: Connection) -> Iterator[tuple[Partition, str, str]]:
    """Yield the partitions of topics that are not being deleted, with topic and host."""
    for topic_id, name, number, host in connection.execute(
        "SELECT topic.id, name, number, host FROM topic JOIN partition ON topic.id = topic_id"
        " WHERE is_deleting = 0"
    ):
        yield (bytes(topic_id), number), name, host


def _read(connection: Connection, wants: Callable[[str, int], bool]) -> Snapshot:
    snapshot = Snapshot()
    wanted: dict[Partition, str] = {}
    for key, name, host in all_partitions(connection):
        if host != ANY_HOST:
            snapshot.local_topics.add(name)
            continue
        snapshot.partitions.add((name, key[1]))
        if wants(name, key[1]):
            wanted[key] = name
    stored = segments_of(connection, wanted)
    tails = _Tails(
        {key: max(one.stored_offset, one.log_start_offset) for key, one in stored.items()}
    )
    place = -1
    while rows := entry_rows(connection, place, _ENTRIES_AT_ONCE):
        tails.add(connection, rows)
        place = rows[-1].place
    tails.end_group()
    for key, one in stored.items():
        snapshot.logs.append(_log(wanted[key], key[1], one, tails.parts[key]))
    snapshot.logs.sort(key=lambda log: (log.topic, log.number))
    return snapshot


def _log(topic: str, number: int, stored: StoredLog, tail: Sequence[LogPart]) -> LogSnapshot:
    parts = [*_segment_parts(stored), *tail]
    producers, offset = None, stored.log_start_offset
    if stored.segments:
        last = stored.segments[-1]
        # The state at the end of a sealed segment, at the begin of another: see packing.py.
        offset = last.base_offset if last.is_open else last.next_offset
        producers = _piece(last, packed_segment(last), SNAPSHOT)
    ends = (stored.stored_offset, stored.log_start_offset)
    end = max([*ends, *(part.next_offset for part in parts)])
    return LogSnapshot(
        topic, number, stored.log_start_offset, end, tuple(parts), producers, offset
    )


def _segment_parts(stored: StoredLog) -> Iterator[LogPart]:
    """Yield the parts of a log that are segments, but for those whose records are deleted."""
    for row in stored.segments:
        if row.size_bytes and row.next_offset > stored.log_start_offset:
            yield _segment_part(row, stored.log_start_offset)


def _segment_part(row: SegmentRow, log_start_offset: int) -> LogPart:
    packed = packed_segment(row)
    log = _piece(row, packed, LOG)
    assert log is not None, "each segment has one"
    return LogPart(
        row.base_offset,
        max(row.base_offset, log_start_offset),
        row.next_offset,
        (log,),
        row.key,
        None if row.is_open or row.max_timestamp < 0 else row.max_timestamp,
        _piece(row, packed, INDEX),
        _piece(row, packed, KEYS),
    )


def _piece(row: SegmentRow, packed: PackedSegment, kind: str) -> Piece | None:
    """Return the place of a file of a segment, None if it has no such file."""
    file = packed.files.get(kind)
    return None if file is None else Piece(row.key, file.position, file.size_bytes)


class _Tails:
    """The ends of logs that only the WAL has: a part of each group of entries."""

    def __init__(self, first_offsets: Mapping[Partition, int]) -> None:
        self._ends = dict(first_offsets)
        self.parts: dict[Partition, list[LogPart]] = {key: [] for key in first_offsets}
        self._open: dict[Partition, list[tuple[Run, Piece]]] = {}
        self._size_bytes = self._groups = 0

    def add(self, connection: Connection, rows: Sequence[EntryRow]) -> None:
        """Add the wanted runs of entries, which follow those before."""
        found = [(row, runs) for row in rows if (runs := read_wanted(row.runs, self._ends))]
        bodies = _inline_bodies(connection, found)
        for row, runs in found:
            for run in runs:
                body = None
                if row.is_inline:
                    begin = run.position - runs[0].position
                    body = bodies[row.place][begin : begin + run.size_bytes]
                key = "" if row.is_inline else object_key(row.session, row.sequence)
                piece = Piece(key, run.position, run.size_bytes, body)
                self._open.setdefault(run.partition, []).append((run, piece))
                self._size_bytes += run.size_bytes
            if self._size_bytes >= _GROUP_BYTES:
                self.end_group()

    def end_group(self) -> None:
        """Make parts of the runs that were added since the last call."""
        for key, some in self._open.items():
            base, end = some[0][0].base_offset, some[-1][0].next_offset
            pieces = tuple(piece for _, piece in some)
            first = max(base, self._ends[key])
            group = f"wal {self._groups:06d}"
            self.parts[key].append(LogPart(base, first, end, pieces, group))
            self._ends[key] = end
        self._open = {}
        self._size_bytes, self._groups = 0, self._groups + 1


def _inline_bodies(
    connection: Connection, found: Collection[tuple[EntryRow, Sequence[Run]]]
) -> dict[int, bytes]:
    """Return the bytes of wanted runs in inline entries, from the first to the last, by place."""
    extents = [(row.place, *extent_of(runs)) for row, runs in found if row.is_inline]
    return entry_parts(connection, extents)
