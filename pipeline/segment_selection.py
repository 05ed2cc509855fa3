"""The selection of records in segment files: the data source's options, and Spark's filters.

Both become a `Selection`, which prunes folders, segments and batches. Pure: nothing here reads a
file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TypeVar

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_columns import COLUMNS

# The range of offsets, and of timestamps in ms.
INT64_MIN, INT64_END = -(2**63), 2**63

STOP, SKIP, REPORT = "stop", "skip", "report"

_PATHS = ("path", "paths")  # Spark sets `paths` for load() with a list
# Settings of a broker, by which its catalog and object store are found.
CONFIG, _CATALOG = "config", "catalog"
_CATALOG_URL, _STORE = "odradek.catalog.url", "odradek.object.store."
_OPTIONS = (
    "topic", "partition", "startingOffset", "endingOffset", "startingTimestamp",
    "endingTimestamp", "key", "isolation", "includeControl", "onDamage", "columns",
    "startingOffsets", "failOnDataLoss",
)  # fmt: skip
# Of streams: where one begins that has no checkpoint.
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class Span:
    """The whole numbers from a start to before an end."""

    start: int = INT64_MIN
    end: int = INT64_END

    def __and__(self, other: Span) -> Span:
        return Span(max(self.start, other.start), min(self.end, other.end))

    def __contains__(self, number: int) -> bool:
        return self.start <= number < self.end


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to read. None stands for all topics, for all partitions and for all keys.

    `timestamps` are in ms. With `committed_only`, records of transactions that were aborted or
    have not ended are left out.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_span: Span = field(default_factory=Span)
    offsets: Span = field(default_factory=Span)
    timestamps: Span = field(default_factory=Span)
    keys: frozenset[bytes] | None = None
    include_control: bool = False
    committed_only: bool = False

    def includes_partition(self, topic: str, partition: int) -> bool:
        """Return whether records of a partition may be among those to read."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and partition in self.partition_span
        )


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """The data source's options, parsed: paths, selection, the treatment of damage, columns.

    Without paths, `shared` has settings of a broker that lead to shared topics, and CONFIG, its
    file.
    """

    paths: tuple[str, ...]
    selection: Selection
    on_damage: str = STOP
    columns: tuple[str, ...] = tuple(COLUMNS)
    shared: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have passwords
    starting_offsets: str = EARLIEST
    fails_on_data_loss: bool = True


# A filter that PySpark 4.1 and later push, such as EqualTo or In: its kind is its class's name,
# its `attribute` is the column's path, and most filters have a `value`.
Filter = TypeVar("Filter")


def parse_options(options: Mapping[str, str]) -> SegmentOptions:
    """Parse the data source's options, whose names may be in any case.

    Raises PipelineError for an option that is unknown, malformed or missing.
    """
    known = {name.lower(): name for name in (*_PATHS, CONFIG, _CATALOG, *_OPTIONS)}
    given: dict[str, str] = {}
    shared: dict[str, str] = {}
    for key, value in options.items():
        name = known.get(key.lower())
        if name is not None:
            given[name] = value
        elif key.lower().startswith(_STORE):
            shared[key.lower()] = value
        else:
            there = ", ".join(("path", CONFIG, _CATALOG, f"{_STORE}*", *_OPTIONS))
            raise PipelineError(f"option {key} is unknown: there are {there}")
    shared |= {
        setting: given[name]
        for name, setting in ((CONFIG, CONFIG), (_CATALOG, _CATALOG_URL))
        if name in given
    }
    selection = Selection(
        topics=_names(given.get("topic")),
        partitions=_partitions(given.get("partition")),
        offsets=_span(given, "startingOffset", "endingOffset"),
        timestamps=_span(given, "startingTimestamp", "endingTimestamp"),
        keys=frozenset([given["key"].encode()]) if "key" in given else None,
        include_control=_one_of(given, "includeControl", ("false", "true")) == "true",
        committed_only=_one_of(given, "isolation", ("read_uncommitted", "read_committed"))
        == "read_committed",
    )
    on_damage = _one_of(given, "onDamage", (STOP, SKIP, REPORT))
    return SegmentOptions(
        _paths(given, shared),
        selection,
        on_damage,
        _columns(given.get("columns")),
        shared,
        _one_of(given, "startingOffsets", (EARLIEST, LATEST)),
        _one_of(given, "failOnDataLoss", ("true", "false")) == "true",
    )


def narrow(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Narrow a selection by filters, all of which hold; return filters that Spark must evaluate.

    Filters on topic, partition and offset are applied fully. Timestamps are compared in ms here,
    and rows of damage have no key, so filters on them are returned, too.
    """
    left: list[Filter] = []
    for one in filters:
        narrower = _NARROWING.get(getattr(one, "attribute", ()))
        is_honoured = False
        if narrower is not None:
            selection, is_honoured = narrower(selection, type(one).__name__, _value(one))
        if not is_honoured:
            left.append(one)
    return selection, left


def _by_topic(selection: Selection, kind: str, value: object) -> tuple[Selection, bool]:
    if kind == "IsNotNull":
        return selection, True
    values = value if kind == "In" else (value,)
    if (
        kind not in ("EqualTo", "EqualNullSafe", "In")
        or not isinstance(values, tuple)
        or not all(isinstance(one, str) for one in values)
    ):
        return selection, False
    topics = frozenset(values) if selection.topics is None else selection.topics & set(values)
    return replace(selection, topics=topics), True


def _by_partition(selection: Selection, kind: str, value: object) -> tuple[Selection, bool]:
    if kind == "In" and isinstance(value, tuple) and all(type(one) is int for one in value):
        chosen = frozenset(value)
        if selection.partitions is not None:
            chosen &= selection.partitions
        return replace(selection, partitions=chosen), True
    span = _compared(kind, value)
    if span is None:
        return selection, kind == "IsNotNull"
    return replace(selection, partition_span=selection.partition_span & span), True


def _by_offset(selection: Selection, kind: str, value: object) -> tuple[Selection, bool]:
    if kind == "In" and isinstance(value, tuple) and all(type(one) is int for one in value):
        span: Span | None = Span(min(value, default=0), max(value, default=-1) + 1)
    else:
        span = _compared(kind, value)
    if span is None:
        return selection, kind == "IsNotNull"
    return replace(selection, offsets=selection.offsets & span), kind != "In"


def _by_timestamp(selection: Selection, kind: str, value: object) -> tuple[Selection, bool]:
    # Without a time zone the value is not a moment.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return selection, False
    exact_ms = value.timestamp() * 1000
    # A float of today's time in ms is exact to some thousandths: a margin of 1 ms is enough.
    first, last = math.floor(exact_ms) - 1, math.ceil(exact_ms) + 1
    if kind in ("EqualTo", "EqualNullSafe"):
        span = Span(first, last + 1)
    elif kind in ("GreaterThan", "GreaterThanOrEqual"):
        span = Span(start=first)
    elif kind in ("LessThan", "LessThanOrEqual"):
        span = Span(end=last + 1)
    else:
        return selection, False
    return replace(selection, timestamps=selection.timestamps & span), False


def _by_key(selection: Selection, kind: str, value: object) -> tuple[Selection, bool]:
    values = value if kind == "In" else (value,)
    if (
        kind not in ("EqualTo", "EqualNullSafe", "In")
        or not isinstance(values, tuple)
        or not all(isinstance(one, bytes | bytearray) for one in values)
    ):
        return selection, False
    chosen = frozenset(map(bytes, values))
    if selection.keys is not None:
        chosen &= selection.keys
    return replace(selection, keys=chosen), False


_NARROWING: dict[tuple[str, ...], Callable[[Selection, str, object], tuple[Selection, bool]]] = {
    ("topic",): _by_topic,
    ("partition",): _by_partition,
    ("offset",): _by_offset,
    ("timestamp",): _by_timestamp,
    ("key",): _by_key,
}


def _compared(kind: str, value: object) -> Span | None:
    """Return the numbers that meet a comparison with a value, None if they are not a span."""
    if type(value) is not int:
        return None
    spans = {
        "EqualTo": Span(value, value + 1),
        "EqualNullSafe": Span(value, value + 1),
        "GreaterThan": Span(start=value + 1),
        "GreaterThanOrEqual": Span(start=value),
        "LessThan": Span(end=value),
        "LessThanOrEqual": Span(end=value + 1),
    }
    return spans.get(kind)


def _value(one: object) -> object:
    value = getattr(one, "value", None)
    return tuple(value) if isinstance(value, list) else value


def _paths(given: Mapping[str, str], shared: Mapping[str, str]) -> tuple[str, ...]:
    paths = [part.strip() for part in given.get("path", "").split(",")]
    if "paths" in given:
        paths += json.loads(given["paths"])
    found = tuple(dict.fromkeys(path for path in paths if path))
    if not found and not shared:
        raise PipelineError(
            "option path is missing: name a folder of log.dirs, or the folder of a partition; "
            f"for shared topics give option {_CATALOG} or {CONFIG} instead"
        )
    if found and shared:
        raise PipelineError(
            f"give option path for files, or {_CATALOG}, {CONFIG} and {_STORE}* for shared "
            "topics, not both"
        )
    return found


def _names(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise PipelineError(
            "option topic is empty: name topics separated by commas, or leave out the option"
        )
    return names


def _partitions(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise PipelineError(f"option partition: {text!r} is not numbers separated by commas")
    return frozenset(map(int, parts))


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(COLUMNS)
    names = [part.strip() for part in text.split(",")]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names):
        wrong = f"{unknown[0]!r} is none" if unknown else "one is named twice"
        raise PipelineError(f"option columns: {wrong}; there are {', '.join(COLUMNS)}")
    return tuple(names)


def _span(given: Mapping[str, str], start: str, end: str) -> Span:
    numbers: dict[str, int] = {}
    for name in (start, end):
        if name in given:
            try:
                numbers[name] = int(given[name])
            except ValueError:
                raise PipelineError(
                    f"option {name}: {given[name]!r} is not a whole number"
                ) from None
    return Span(numbers.get(start, INT64_MIN), numbers.get(end, INT64_END)) & Span()


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """Return an option's value, or the first of the possible values when it is not given."""
    value = given.get(name, values[0]).lower()
    if value not in values:
        raise PipelineError(f"option {name}: {given[name]!r} is none of {', '.join(values)}")
    return value
