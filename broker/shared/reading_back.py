"""Logs of shared partitions as the bucket and the catalog have them: segments, then the WAL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import StoredLog, segments_of
from odradek.broker.catalog.wal_reading import read_wal
from odradek.broker.ids import Partition
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.building import Builder, Built, stops
from odradek.broker.topics.states import Wanted
from odradek.dataclass import dataclass
from odradek.storage.log import Log

# Most of the time the system creates files, several at a time.
_THREADS = 4


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Logs, or the errors of those that cannot be built; their rows; their bytes in the WAL."""

    logs: dict[Partition, Built]
    stored: Mapping[Partition, StoredLog]
    wal_bytes: dict[Partition, int]


async def read_back(
    bucket: Bucket, line: Line, builder: Builder, wanted: Sequence[Wanted], now_ms: int
) -> ReadBack:
    """Build logs. Raises MetadataError, ObjectStoreError and StorageError.

    Nobody may commit or store batches of these partitions meanwhile, or the logs may lack some.
    """
    known = [one.key for one in wanted if not one.is_new]
    stored: Mapping[Partition, StoredLog] = {}
    if known:
        stored = await line.read(partial(segments_of, partitions=known))
    shares = [wanted[at::_THREADS] for at in range(min(_THREADS, len(wanted)))]
    begun = await asyncio.gather(
        *(asyncio.to_thread(builder.begin, one, stored, now_ms) for one in shares)
    )
    logs = dict(itertools.chain.from_iterable(one.items() for one in begun))
    sizes = dict.fromkeys(logs, 0)
    if known:
        ends = {key: log.log_end_offset for key, log in logs.items() if isinstance(log, Log)}
        async with aclosing(read_wal(line, bucket.store, bucket.reads, ends)) as entries:
            async for some in entries:
                if builder.is_stopping:  # a slow bucket must not hold up the stop
                    logs |= {one.key: stops(one) for one in wanted}
                    break
                await asyncio.to_thread(builder.append, logs, some, now_ms)
                for run, _ in some:
                    sizes[run.partition] += run.size_bytes
    await asyncio.to_thread(builder.finish, wanted, logs, stored, now_ms)
    return ReadBack(logs, stored, sizes)
