"""The appends of a year: patterns of keys, and the segments that they are sealed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.year_model import NEVER, Flags, Numbers, Records, RecordSizes, SealedSegment
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX, is_due_to_seal
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import HEADER_SIZE
from odradek.storage.rolling import segment_bytes_max

DAY_MS = 86_400_000
# The age of records that only the WAL has when they are stored (StoringLimits.wal_age_s).
LOOK_MS = 600_000


@dataclass(frozen=True, slots=True)
class Appends:
    """Keys in the order of appending; the first `loaded` of them are there before the year."""

    keys: Numbers
    is_tombstone: Flags
    loaded: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """A steady load, whose records of the year come at equal intervals."""

    text: str
    sizes: RecordSizes
    make: Callable[[np.random.Generator, int, float], Appends]  # from days and scale


def articles(
    random: np.random.Generator, days: int, scale: float, old_share: float = 0.01
) -> Appends:
    """Zendesk's: 400,000 old articles; 400 new ones a day, each with ten updates, soon.

    An update comes five days after the creation on average. A share of the records are updates
    of old articles, any of them.
    """
    old, new, recent = int(400_000 * scale), int(400 * scale), 30
    births = np.repeat(np.sort(random.random((days + recent) * new)) * (days + recent), 11)
    keys = old + np.arange(len(births)) // 11
    times = births + random.exponential(5.0, len(births)) * (np.arange(len(births)) % 11 > 0)
    # Thirty days before the year begins, so that its first day is like the others.
    chosen = (times >= recent) & (times < days + recent)
    order = np.argsort(times[chosen], kind="stable")
    keys = keys[chosen][order]
    is_old = random.random(len(keys)) < old_share
    keys[is_old] = random.integers(0, old, int(is_old.sum()))
    known = np.unique(old + np.flatnonzero(births[::11] < recent))
    return _values([np.arange(old), known, keys], old + len(known))


def uniform(random: np.random.Generator, days: int, scale: float) -> Appends:
    """Updates of 300,000 keys, each with the same chance: 30,000 a day."""
    count = int(300_000 * scale)
    return _values([np.arange(count), random.integers(0, count, days * count // 10)], count)


def zipf(random: np.random.Generator, days: int, scale: float) -> Appends:
    """Updates of 300,000 keys by Zipf's law: 30,000 a day."""
    count = int(300_000 * scale)
    ranks = np.exp(random.random(days * count // 10) * np.log(count + 1)).astype(np.int64) - 1
    keys = random.permutation(count)
    return _values([np.arange(count), keys[ranks]], count)


def appends(random: np.random.Generator, days: int, scale: float) -> Appends:
    """10,000 new keys a day, and an update of an earlier one for each twenty of them."""
    new = int(10_000 * scale)
    parts = []
    for day in range(days):
        created = np.arange(day * new, (day + 1) * new)
        updated = random.integers(0, (day + 1) * new, new // 20)
        parts.append(random.permutation(np.concatenate([created, updated])))
    return _values(parts, 0)


def sessions(random: np.random.Generator, days: int, scale: float) -> Appends:
    """10,000 sessions a day: created, updated three times, deleted a day later on average."""
    count = int(10_000 * scale) * days
    births = np.sort(random.random(count)) * days
    ends = births + random.exponential(1.0, count)
    updates = births[:, None] + (ends - births)[:, None] * random.random((count, 3))
    times = np.concatenate([births, updates.ravel(), ends])
    keys = np.concatenate([np.arange(count), np.repeat(np.arange(count), 3), np.arange(count)])
    deletes = np.arange(len(times)) >= 4 * count
    order = np.argsort(times, kind="stable")
    order = order[times[order] < days]
    return Appends(keys[order], deletes[order], 0)


def _values(parts: list[Numbers], loaded: int) -> Appends:
    keys = np.concatenate(parts)
    return Appends(keys, np.zeros(len(keys), np.bool_), loaded)


PATTERNS: Mapping[str, Pattern] = {
    "articles": Pattern("few updates over many old keys", RecordSizes(2000, 40, 16), articles),
    "closed": Pattern(
        "the same, and no updates of old articles",
        RecordSizes(2000, 40, 16),
        partial(articles, old_share=0.0),
    ),
    "uniform": Pattern("updates of a fixed set of keys", RecordSizes(1000, 40, 16), uniform),
    "zipf": Pattern("updates by Zipf's law", RecordSizes(1000, 40, 16), zipf),
    "appends": Pattern("mostly new keys", RecordSizes(1000, 40, 16), appends),
    "sessions": Pattern("keys that are deleted", RecordSizes(500, 40, 16), sessions),
}


def sealed_segments(
    load: Appends, sizes: RecordSizes, config: TopicConfig, days: int, *, shared: bool
) -> Iterator[tuple[int, SealedSegment]]:
    """Yield the times at which segments are sealed, and the segments.

    The loaded records come at 0, the others in the days after it. A shared log is looked at
    every ten minutes, as its records become old enough to be stored (broker/shared/uploads.py).
    """
    batch = sizes.batch_records
    count, loaded = (number // batch * batch for number in (len(load.keys), load.loaded))
    bytes_to = _bytes_to(load, sizes)
    limit = segment_bytes_max(config)
    if shared:
        limit = min(limit, SEGMENT_BYTES_MAX)
    looks = days * DAY_MS // LOOK_MS
    base = end = opened_bytes = began_ms = 0
    for look in range(looks + 1):
        at_ms, is_sealed = look * LOOK_MS, not look
        stop = loaded + (count - loaded) * look // looks // batch * batch
        while end < stop:
            fits = int(np.searchsorted(bytes_to, bytes_to[base] + limit, "right")) - 1
            end = min(max(fits // batch * batch, base + batch), stop)
            if end < stop:
                yield at_ms, _segment(load, sizes, base, end, began_ms, at_ms)
                base, opened_bytes, began_ms = end, 0, at_ms
        size_bytes = int(bytes_to[end] - bytes_to[base])
        if shared:
            is_sealed |= is_due_to_seal(size_bytes, opened_bytes)
            opened_bytes = size_bytes
        else:
            is_sealed |= at_ms - began_ms > config.max_segment_ms
        if is_sealed and end > base:
            yield at_ms, _segment(load, sizes, base, end, began_ms, at_ms)
            base, opened_bytes, began_ms = end, 0, at_ms


def _bytes_to(load: Appends, sizes: RecordSizes) -> Numbers:
    """Return the bytes of all records before each record, and of all."""
    records = np.where(load.is_tombstone, sizes.tombstone_bytes, sizes.value_bytes)
    headers = np.arange(len(records) + 1) // sizes.batch_records * HEADER_SIZE
    return np.concatenate([[0], np.cumsum(records)]) + headers


def _segment(
    load: Appends, sizes: RecordSizes, base: int, end: int, first_ms: int, last_ms: int
) -> SealedSegment:
    count = end - base
    records = Records(
        np.arange(base, end),
        load.keys[base:end],
        load.is_tombstone[base:end],
        np.full(count, NEVER, np.int64),
    )
    return SealedSegment.of(base, records, sizes, max(first_ms, 1), last_ms)
