"""Histories of a log from a seed: of the same kind as histories.py's, broader, and quick to make.

A step says what happens, not with which offsets: so each history stays one when steps are left
out of it, and `shorten` can make a failing one small.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.protocol.compression import Codec
from tests.storage.old_logs import FORMATS

Pair = tuple[bytes | None, bytes | None]

# Of all lengths that a hash could treat differently; one is also the key of an abort marker.
_KEYS = [b"", b"a", b"b", b"seven-7", b"eight-88", b"fourteen-14-14", b"x" * 70, b"\0\0\0\0"]
_KEYS += [b"key-%d" % at for at in range(12)]
_PAIRS_MAX = 6
# A map of so many keys takes any one batch, without which Kafka's cleaner cannot go on.
SMALL_MAP_KEYS = range(_PAIRS_MAX + 1, 11)
EXPIRATION_MS = 5_000
IDEMPOTENT, TRANSACTIONAL = (1, 2), (3, 4, 5)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of an idempotent producer, of a transactional one, or of none."""

    pairs: tuple[Pair, ...]
    ages_ms: tuple[int | None, ...]  # how much older than now each record is; None: no timestamp
    codec: Codec = Codec.NONE
    producer: int | None = None
    gap: int = 0
    log_append_time: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, by an epoch that is raised or not.

    A coordinator may tell again that one has ended; else there is nothing to end without one.
    """

    producer: int
    commit: bool
    raises_epoch: bool = False
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Old:
    """A message of format 0 or 1, or several in a wrapper when there is a codec."""

    magic: int
    pairs: tuple[Pair, ...]
    codec: Codec = Codec.NONE
    log_append_time: bool = False


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A control batch that ends no transaction."""


@dataclass(frozen=True, slots=True)
class Renew:
    """A producer's newer epoch, of which its next batch is; not in a transaction."""

    producer: int


@dataclass(frozen=True, slots=True)
class Roll:
    """A new active segment."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes, or the clock is set back."""

    ms: int


@dataclass(frozen=True, slots=True)
class Configure:
    """New settings of the topic, fields of TopicConfig."""

    settings: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reopen:
    """The log is closed and loaded again."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Producers that were silent for EXPIRATION_MS are forgotten."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Records up to a part of the log are deleted, and perhaps their segments."""

    part: float
    deletes_segments: bool


@dataclass(frozen=True, slots=True)
class Clean:
    """A cleaning, with a map for so many keys at most."""

    keys: int | None = None
    chunk_bytes: int = 1 << 20


Written = Batch | Old | End | LeaderChange
Step = Written | Renew | Roll | Wait | Configure | Reopen | Expire | Trim | Clean


@dataclass(frozen=True, slots=True)
class Weights:
    """How likely one history's steps are."""

    keys: Sequence[bytes | None]
    producers: Sequence[int | None]
    codecs: Sequence[Codec]
    tombstones: float
    rolls: float
    ends: float
    rare: float
    old: float


def history(seed: int, *, small_maps: bool = False, old_formats: bool = False) -> list[Step]:
    """Make a history: some rounds of steps, most of them rolled, each cleaned.

    With `old_formats` it begins with messages of formats 0 and 1.
    """
    source = random.Random(seed)
    key_count = source.randrange(10, 20) if small_maps else source.randrange(1, 12)
    weights = Weights(
        keys=[*source.sample(_KEYS, key_count), *[None] * source.randrange(2)],
        producers=source.choice(
            [(None,), (None, *IDEMPOTENT), (None, *TRANSACTIONAL), (3,), (None, 1, 2, 3, 4)]
        ),
        codecs=source.choice([(Codec.NONE,), (Codec.NONE,), tuple(Codec)]),
        tombstones=source.choice([0.0, 0.2, 0.2, 0.7]),
        rolls=source.choice([0.02, 0.1, 0.4]),
        ends=source.choice([0.1, 0.3, 0.6]),
        rare=source.choice([0.0, 0.05, 0.2]),
        old=0.7 if old_formats else 0.0,
    )
    steps: list[Step] = []
    if source.random() < 0.6:
        steps.append(_configure(source))
    for _ in range(source.randrange(1, 9)):
        for _ in range(source.randrange(source.choice([2, 12]))):
            steps.append(_step(source, weights))
        if source.random() < 0.4:
            ended = [p for p in weights.producers if p in TRANSACTIONAL]
            steps += [End(p, source.random() < 0.5) for p in ended]
        steps += [Roll()] * (source.random() < 0.8)
        steps.append(Wait(source.choice([0, 50, 99, 100, 101, 1000, 6000, -300])))
        keys = source.choice(SMALL_MAP_KEYS) if small_maps else None
        steps.append(Clean(keys, source.choice([200, 1 << 20])))
        steps += [Reopen()] * (source.random() < 0.02)
        # Once there are batches of format 2 nothing older comes any more.
        weights = replace(weights, old=0.0 if source.random() < 0.5 else weights.old)
    has_one_way = not small_maps and not old_formats
    has_one_size = has_one_way and weights.codecs == (Codec.NONE,)
    return [
        _within(step, has_one_way, has_one_size) if isinstance(step, Configure) else step
        for step in steps
    ]


def _within(step: Configure, has_one_way: bool, has_one_size: bool) -> Configure:
    """Leave out of settings what would make a difference where none is looked for.

    With a retention of 0 it matters how many passes there are, and how old the segments of old
    formats. A ratio of bytes depends on the codec's library.
    """
    settings = dict(step.settings)
    if not has_one_way:
        settings["delete_retention_ms"] = max(settings["delete_retention_ms"], 1)
    if not has_one_size:
        settings.pop("min_cleanable_dirty_ratio", None)
    return Configure(settings)


def _step(source: random.Random, weights: Weights) -> Step:
    if source.random() < weights.rolls:
        return Roll()
    if source.random() < weights.rare:
        rare: list[Step] = [
            _configure(source),
            Expire(),
            Trim(source.random(), source.random() < 0.5),
            Renew(source.choice([*IDEMPOTENT, *TRANSACTIONAL])),
            End(source.choice(TRANSACTIONAL), source.random() < 0.5, is_repeated=True),
            LeaderChange(),
            Wait(source.choice([1, 7, 100, 2000, -500])),
        ]
        return source.choice(rare)
    if source.random() < weights.old:
        return _old(source, weights)
    producer = source.choice(weights.producers)
    if producer in TRANSACTIONAL and source.random() < weights.ends:
        return End(producer, source.random() < 0.5, source.random() < 0.2)
    count = source.randrange(1, _PAIRS_MAX + 1)
    age_ms = source.choice([0, 0, 10, 3000])
    apart_ms = source.choice([0, -1, 7])
    stamped = source.choice([1.0, 1.0, 1.0, 0.7])
    return Batch(
        tuple(_pair(source, weights) for _ in range(count)),
        tuple(
            age_ms + at * apart_ms if source.random() < stamped else None for at in range(count)
        ),
        source.choice(weights.codecs),
        producer,
        source.choice([0, 0, 0, 0, 1, 50]),
        source.random() < 0.15,
    )


def _old(source: random.Random, weights: Weights) -> Old:
    magic = source.randrange(2)
    codec = source.choice(FORMATS[magic])
    count = 1 if codec == Codec.NONE else source.randrange(1, _PAIRS_MAX + 1)
    pairs = tuple(_pair(source, weights) for _ in range(count))
    return Old(magic, pairs, codec, source.random() < 0.15)


def _pair(source: random.Random, weights: Weights) -> Pair:
    key = source.choice(weights.keys)
    if source.random() < weights.tombstones:
        return key, None
    return key, source.choice([b"", b"v%d" % source.randrange(1000), b"w" * 100])


def _configure(source: random.Random) -> Configure:
    settings: dict[str, float] = {
        "delete_retention_ms": source.choice([0, 100, 100, 5000]),
        "internal_segment_bytes": source.choice([60, 400, 1500, 1 << 20]),
        "index_interval_bytes": source.choice([0, 100, 4096]),
    }
    if source.random() < 0.3:
        settings["min_compaction_lag_ms"] = source.choice([0, 50, 2000])
    if source.random() < 0.2:
        settings["max_compaction_lag_ms"] = source.choice([2000, 2**63 - 1])
    if source.random() < 0.2:
        settings["min_cleanable_dirty_ratio"] = source.choice([0.0, 0.3, 1.0])
    return Configure(settings)


def shorten(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out of a failing history what it fails without."""
    left = list(steps)
    size = max(len(left) // 2, 1)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if fails(fewer):
                left = fewer
            else:
                at += size
        if size == 1:
            return left
        size //= 2
