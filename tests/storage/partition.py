"""A partition's log in a log directory, used as the broker uses it, on any file system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.protocol.compression import Codec
from odradek.storage.appended import Appended
from odradek.storage.directory import LogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.segment import CLEANED, Segment
from tests.simulation.clock import SimulatedClock

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
COMPACT = frozenset({"compact"})

# Small enough that a test of some batches crosses every limit.
SMALL = TopicConfig(
    internal_segment_bytes=2000,
    index_interval_bytes=200,
    segment_index_bytes=1000,
    segment_ms=10_000,
)

KeyValue = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in the log."""

    base_offset: int
    last_offset: int
    data: bytes

    @property
    def records(self) -> list[Record]:
        """Its records."""
        return decode_records(self.data)


def make_batch(
    records: Sequence[KeyValue],
    timestamps: Sequence[int] | int,
    *,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """Encode a batch as a client would; `producer` is (id, epoch, base sequence)."""
    if isinstance(timestamps, int):
        timestamps = [timestamps] * len(records)
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        [
            Record(base_offset + at, timestamp, key, value)
            for at, ((key, value), timestamp) in enumerate(zip(records, timestamps, strict=True))
        ],
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
        transactional=is_transactional,
    )


class Partition:
    """One life of a log directory with one partition in it."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path = Path("/data"),
        config: TopicConfig = SMALL,
        clock: SimulatedClock | None = None,
    ) -> None:
        self.fs, self.path, self.clock = fs, path, clock or SimulatedClock()
        self.directory = LogDirectory(fs, path, cluster_id="c", node_id=1)
        self.log: Log = self.directory.create_log(
            TOPIC, 0, TOPIC_ID, config, now_ms=self.clock.now_ms()
        )

    def next_life(self, fs: FileSystem | None = None) -> Partition:
        """Open the directory again, as another file system left it when one is given."""
        self.directory._lock = None
        return Partition(fs or self.fs, self.path, self.log.config, self.clock)

    def reopen(self) -> Partition:
        """Stop cleanly and start again."""
        self.directory.close()
        return self.next_life()

    def append(
        self,
        records: Sequence[KeyValue],
        timestamps: Sequence[int] | int | None = None,
        *,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int, int] | None = None,
    ) -> Appended:
        """Append a batch; without timestamps it is of now."""
        now_ms = self.clock.now_ms()
        batch = make_batch(
            records, now_ms if timestamps is None else timestamps, codec=codec, producer=producer
        )
        return self.log.append(batch, now_ms=now_ms)

    def flush(self) -> None:
        """Make all that is in the log durable, as a group commit does."""
        unflushed = self.log.unflushed()
        unflushed.sync()
        self.log.flushed(unflushed.end_offset)

    def batches(self) -> list[StoredBatch]:
        """Read all batches, as a consumer does."""
        return read_all(self.log)

    def records(self) -> list[Record]:
        """Read all records, those before the log start offset left out."""
        start = self.log.log_start_offset
        return [r for batch in self.batches() for r in batch.records if r.offset >= start]


def read_all(log: Log, size_max: int = 1 << 20) -> list[StoredBatch]:
    """Read all batches of a log from its start on."""
    batches: list[StoredBatch] = []
    offset = log.log_start_offset
    while (found := log.read(offset, size_max, at_least_one=True)) is not None:
        data = found.read()
        assert len(data) == found.size
        for position, header in iterate_batches(data):
            octets = data[position : position + header.size_bytes]
            batches.append(StoredBatch(header.base_offset, header.last_offset, octets))
        assert batches[-1].last_offset >= offset
        offset = batches[-1].last_offset + 1
    return batches


def clean(partition: Partition, first: int, count: int, dropped: set[int]) -> None:
    """Put one segment in the place of `count`, without the batches of some base offsets."""
    old, new = rewrite(partition, first, count, dropped)
    partition.log.replace_segments(old, [new], partition.clock.now_ms())


def rewrite(
    partition: Partition, first: int, count: int, dropped: set[int]
) -> tuple[Sequence[Segment], Segment]:
    """Return `count` segments, and the one that is to take their place, without some batches."""
    log = partition.log
    old = log.segments[first : first + count]
    new = Segment(partition.fs, log.directory, old[0].base_offset, suffix=CLEANED)
    for segment in old:
        for _, header, data in segment.batches():
            if header.base_offset not in dropped:
                new.append(
                    (bytes(data),),
                    len(data),
                    header.last_offset,
                    header.max_timestamp,
                    log.config.index_interval_bytes,
                )
    new.seal()
    new.flush()
    return old, new
