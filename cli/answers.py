"""The broker's JSON answers about its cleaner (broker/web/cleaner_json.py)."""

from __future__ import annotations

from typing import NotRequired, TypedDict

Value = str | int | float | bool | None


class StoreUse(TypedDict):
    """Requests to the object store, as a bill has them."""

    puts: int
    gets: int
    sent_bytes: int
    received_bytes: int
    dollars: float | None  # None while the broker has no object store


class Result(TypedDict):
    """The report of a cleaning, or of a dry run."""

    reason: str
    first_dirty_offset: int
    end_offset: int
    total_ms: int
    indexed_bytes: int
    read_bytes: int
    written_bytes: int
    start_bytes: int
    end_bytes: int
    reclaimed_bytes: int
    start_records: int
    end_records: int
    removed_records: int
    expired_tombstones: int
    removed_markers: int
    removed_aborted_batches: int
    invalid_records: int
    segments_read: int
    segments_kept: int
    segments_skipped: int
    segments_written: int
    map_keys: int
    map_bytes: int
    spilled_bytes: int
    spill_count: int
    is_alone: NotRequired[bool]  # of the dirty part alone; older brokers lack it
    store: NotRequired[StoreUse | None]  # None for a local topic; older brokers lack it


class AtMost(TypedDict):
    """Upper bounds on the work and memory of a cleaning."""

    records: int
    map_bytes: int
    may_spill: bool
    read_bytes: int
    written_bytes: int
    store: NotRequired[StoreUse | None]  # None for a local topic; older brokers lack it


class Log(TypedDict):
    """A partition, how dirty it is, and the cleaner's verdict on it."""

    topic: str
    partition: int
    verdict: str
    sentence: str
    reason: str | None
    due_ms: int | None
    queue_position: int | None
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    bound_is: str
    log_end_offset: int
    segments: int
    dirty_ratio: float


class Plan(Log):
    """The effect that cleaning a partition would have."""

    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    at_most: AtMost
    exact: Result | None
    exact_missing: str | None
    exact_missing_because: str | None


class Unreadable(TypedDict):
    """A partition that could not be read, and why."""

    topic: str
    partition: int
    because: str


class PlanAnswer(TypedDict):
    """The answer to GET /api/cleaner/plan."""

    now_ms: int
    is_exact: bool
    nothing_to_clean: int
    not_compacted: int
    unreadable: list[Unreadable]
    plans: list[Plan]


class Condition(TypedDict):
    """One condition for a cleaning."""

    kind: str
    name: str
    is_met: bool
    value: Value
    threshold: Value
    text: str
    met_at_ms: int | None


class WalPart(TypedDict):
    """The records of a shared topic that are in no segment of the object store yet."""

    bytes: int


class Level(TypedDict):
    """Segments of a shared topic in the object store."""

    segments: int
    objects: int
    bytes: int


class Levels(TypedDict):
    """The places of the records of a shared topic."""

    wal: WalPart
    dirty: Level
    clean: Level


class WhyAnswer(Log):
    """The answer to GET /api/cleaner/why."""

    now_ms: int
    conditions: list[Condition]
    levels: NotRequired[Levels | None]  # None for a local topic; older brokers lack it


class Outcome(TypedDict):
    """The outcome of a requested cleaning."""

    topic: str
    partition: int
    outcome: str
    sentence: str
    result: Result | None


class Asked(TypedDict):
    """A partition that will be cleaned."""

    topic: str
    partition: int


class RunAnswer(TypedDict, total=False):
    """The answer to POST /api/cleaner/run: outcomes, or without a wait the partitions asked."""

    outcomes: list[Outcome]
    asked: list[Asked]


class Failure(TypedDict):
    """The reason why a cleaning failed."""

    exception: str
    file: str | None
    position: int | None
    failures: int
    retry_at_ms: int


class Run(TypedDict):
    """A run of the history: a result, or a failure."""

    outcome: str
    at_ms: int
    result: Result
    failure: Failure


class Quarantined(TypedDict):
    """A partition whose last cleaning failed, and the time of the next attempt."""

    due_ms: int | None


class HistoryAnswer(TypedDict):
    """The answer to GET /api/cleaner/history."""

    now_ms: int
    topic: str
    partition: int
    runs: list[Run]
    quarantined: Quarantined | None
