"""Plans of fetches: the bytes of files that an answer has, decided before any of them is read.

Partitions take turns, and each gets as many bytes as its limit and that of the request allow. The
first batch of the first partition that has one is complete even when it exceeds the limits
(KIP-74). Readers with read_committed get only records before the last stable offset, and a list
of the aborted transactions among them (KIP-98). A reader whose last batch is not in this log's
history gets the offset where the two diverge (KIP-595).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Protocol

from odradek.broker.errors import code_of
from odradek.broker.fetch.closest import (
    ClosestServices,
    closest_to,
    find_replica,
    note_failure,
)
from odradek.broker.fetch.reading import Reading
from odradek.broker.fetch.reads import NO_DIVERGENCE, find_aborted, find_divergence, is_behind
from odradek.broker.fetch.sessions import WantedPartition
from odradek.broker.fetch.wanted import find_topic
from odradek.broker.metadata import members
from odradek.broker.reassignment.followers import Followers
from odradek.broker.topics.states import OfflinePartition, RemotePartition
from odradek.broker.topics.topic import Topic
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from odradek.protocol.pacing import Pace
from odradek.protocol.wire import ZERO_UUID
from odradek.storage.errors import NotCached, StorageError
from odradek.storage.log import Log
from odradek.storage.segment import Slice

# Most answers share these values, which are never changed.
NO_LEADER, _NO_SNAPSHOT = LeaderIdAndEpoch(), SnapshotId()
_NONE_ABORTED: list[AbortedTransaction] = []
_UNLIMITED_BYTES = 1 << 62


class FetchServices(ClosestServices, Protocol):
    """The parts of a broker that a plan takes."""

    # None where no other broker can copy a partition of this one.
    followers: Followers | None


@dataclass(slots=True)
class Planned:
    """A partition's part of the answer, before its bytes are read."""

    wanted: WantedPartition
    data: PartitionData
    log: Log | None = None
    slice: Slice | None = None
    is_idle: bool = False  # nothing is left to read

    @property
    def idle_log(self) -> Log | None:
        """The log, if nothing is left to read in it."""
        return self.log if self.is_idle else None


@dataclass(slots=True)
class Plan:
    """An answer, before its bytes are read."""

    read: list[Planned] = field(default_factory=list)
    unknown: list[Planned] = field(default_factory=list)  # the request does not wait for these
    slices: list[Planned] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)  # the request may wait for these
    size_bytes: int = 0
    is_due: bool = False  # the answer must not wait for min_bytes
    # Reads of the disk that are needed before the partitions left out can be planned.
    cold: list[NotCached] = field(default_factory=list)


def plan_fetch(
    services: FetchServices,
    reading: Reading,
    wanted: Iterable[WantedPartition],
    *,
    is_again: bool = False,
    may_wait: bool = False,
) -> Plan:
    """Decide the content of an answer; with `is_again` its partitions were all known before."""
    plan = Plan()
    left = reading.size_max
    unresolved: list[Planned] = []
    name: str | None = None
    topic: Topic | None = None
    for one in wanted:
        if one.topic is None or one.topic is not name:  # else it is that of the one before
            topic = find_topic(services.topics, one)
            name = one.topic
        if reading.denied and name in reading.denied:
            plan.unknown.append(_denied(one))
            continue
        if topic is None or not 0 <= one.request.partition < len(topic.partitions):
            if is_again:
                plan.read.append(refused(reading, one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                plan.is_due = True
            elif one.topic is None and not reading.is_follower:
                unresolved.append(_unknown(one))  # these come first in answers to consumers
            else:
                plan.unknown.append(_unknown(one))
            continue
        is_first = plan.size_bytes == 0
        try:
            planned = _plan_partition(services, reading, topic, one, left, is_first, may_wait)
        except NotCached as error:
            plan.cold.append(error)
            continue
        plan.read.append(planned)
        if left < 0:
            left = 0
        log, found = planned.log, planned.slice
        data = planned.data
        if log is None or data.diverging_epoch is not NO_DIVERGENCE:
            plan.is_due = True
            continue
        if data.preferred_read_replica >= 0:
            plan.is_due = True
        plan.logs.append(log)
        if found is not None:
            plan.slices.append(planned)
            plan.size_bytes += found.size
            left = max(left - found.size, 0)
            plan.is_due |= is_behind(log, found, reading.is_committed)
    plan.unknown = [*unresolved, *plan.unknown] if unresolved else plan.unknown
    return plan


def unknown_among(
    services: FetchServices, reading: Reading, wanted: Iterable[WantedPartition], pace: Pace
) -> list[Planned]:
    """Return plan_fetch's entries for the partitions that do not exist, or are denied.

    A client can name very many of them; the others are no more than the broker has.
    """
    unresolved: list[Planned] = []
    unknown: list[Planned] = []
    for one in pace(wanted):
        topic = find_topic(services.topics, one)
        if reading.denied and one.topic in reading.denied:
            unknown.append(_denied(one))
        elif topic is None or not 0 <= one.request.partition < len(topic.partitions):
            comes_first = one.topic is None and not reading.is_follower
            (unresolved if comes_first else unknown).append(_unknown(one))
    return [*unresolved, *unknown]


def refused(
    reading: Reading, wanted: WantedPartition, code: ErrorCode, log: Log | None = None
) -> Planned:
    """Answer with an error for a partition that could not be read; `log` has the leader epoch."""
    if code == ErrorCode.KAFKA_STORAGE_ERROR and not reading.knows_storage_errors:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = error_data(wanted.request.partition, code)
    data.aborted_transactions = None  # as in Kafka
    if log is not None and reading.leader_id is not None:
        data.current_leader = LeaderIdAndEpoch(
            leader_id=reading.leader_id, leader_epoch=log.leader_epoch
        )
    return Planned(wanted, data)


def _led_elsewhere(reading: Reading, wanted: WantedPartition, leader: members.Leader) -> Planned:
    planned = refused(reading, wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if leader.node_id != members.NO_LEADER and reading.leader_id is not None:
        planned.data.current_leader = LeaderIdAndEpoch(
            leader_id=leader.node_id, leader_epoch=leader.epoch
        )
    return planned


def error_data(partition: int, code: ErrorCode) -> PartitionData:
    """Return the error of a partition that the broker has not tried to read."""
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=-1,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=_NONE_ABORTED,
        records=b"",
    )


def accumulated_bytes(plan: Plan, reading: Reading) -> int | None:
    """Count the bytes to compare with min_bytes while a request waits; None ends the wait.

    The count is the sum of each partition's bytes alone. It may exceed the room in the answer, or
    fall short, since the first batch may exceed its limit (DelayedFetch, case G).
    """
    total = 0
    for planned in plan.read:
        if planned.log is None or planned.is_idle:
            continue
        request = planned.wanted.request
        try:
            found = planned.log.read(
                request.fetch_offset,
                _UNLIMITED_BYTES,
                at_least_one=True,
                is_committed=reading.is_committed,
                may_wait=False,
            )
        except (StorageError, NotCached):
            return None  # the answer will report the error, or wait for the disk
        if found is not None:
            if is_behind(planned.log, found, reading.is_committed):
                return None
            total += min(found.size, request.partition_max_bytes)
    return total


def may_count_less(wanted: Iterable[WantedPartition], size_min: int) -> bool:
    """Return whether some appends may count for fewer bytes than they have."""
    if size_min <= 1:  # as in nearly all requests: a thousand partitions take long to look at
        return False
    return any(one.request.partition_max_bytes < size_min for one in wanted)


def _denied(wanted: WantedPartition) -> Planned:
    return Planned(
        wanted, error_data(wanted.request.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )


def _unknown(wanted: WantedPartition) -> Planned:
    by_id = wanted.topic is None
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Planned(wanted, error_data(wanted.request.partition, code))


def _plan_partition(
    services: FetchServices,
    reading: Reading,
    topic: Topic,
    one: WantedPartition,
    left: int,
    is_first: bool,
    may_wait: bool,
) -> Planned:
    log = _log_for(services, reading, topic, one)
    if isinstance(log, Planned):
        return log
    request = one.request
    offset, found, aborted, divergence = request.fetch_offset, None, None, NO_DIVERGENCE
    size_max = request.partition_max_bytes if request.partition_max_bytes < left else left
    if reading.is_follower:
        room = _follow(services, reading, topic, one)
        if room is None:
            if request.current_leader_epoch >= 0:
                return refused(reading, one, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return refused(reading, one, ErrorCode.NOT_LEADER_OR_FOLLOWER, log)
        size_max, is_first = min(size_max, room), is_first and room > 0
    is_idle = False
    try:
        if request.last_fetched_epoch >= 0:
            divergence = find_divergence(log, request)
        if divergence is NO_DIVERGENCE:
            is_committed = reading.is_committed
            found = log.read(
                offset,
                size_max if size_max > 0 else 0,
                at_least_one=is_first,
                is_committed=is_committed,
                may_wait=may_wait,
            )
            if found is not None and reading.is_follower and services.followers is not None:
                services.followers.spend(log, found.size)
            if found is None:
                end = log.last_stable_offset if is_committed else log.high_watermark
                is_idle = offset >= end
            if size_max < 0 and not is_idle:
                return refused(reading, one, ErrorCode.UNKNOWN_SERVER_ERROR)
            if is_committed and (found or is_idle or size_max == 0):  # not if a batch is too large
                aborted = find_aborted(log, offset, found)
    except StorageError as error:
        return _unreadable(services, reading, one, log, error)
    closest = closest_to(services, reading, topic, log, offset) if reading.rack else -1
    if closest >= 0:
        found, aborted, is_idle = None, None, False
    data = PartitionData(
        partition_index=request.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=divergence,
        current_leader=NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=aborted,
        preferred_read_replica=closest,
        records=b"",
    )
    return Planned(one, data, log, found, is_idle)


def _log_for(
    services: FetchServices, reading: Reading, topic: Topic, one: WantedPartition
) -> Log | Planned:
    """Return the log to read, or the refusal."""
    request = one.request
    log = topic.partitions[request.partition]
    if isinstance(log, OfflinePartition):
        return refused(reading, one, code_of(log.cause))
    if reading.is_follower:
        log = _followed(services, reading, topic, one) or log
    if isinstance(log, RemotePartition):
        replica = find_replica(services, reading, topic, log)
        if replica is None:
            return _led_elsewhere(reading, one, log.leader)
        log = replica
    if one.topic_id not in (topic.topic_id, ZERO_UUID):
        return refused(reading, one, ErrorCode.INCONSISTENT_TOPIC_ID)
    if request.current_leader_epoch >= 0 and request.current_leader_epoch != log.leader_epoch:
        if request.current_leader_epoch > log.leader_epoch:
            return refused(reading, one, ErrorCode.UNKNOWN_LEADER_EPOCH)
        return refused(reading, one, ErrorCode.FENCED_LEADER_EPOCH, log)
    return log


def _unreadable(
    services: FetchServices, reading: Reading, one: WantedPartition, log: Log, error: StorageError
) -> Planned:
    is_replica, code = note_failure(services, log, error), code_of(error)
    if is_replica and code == ErrorCode.OFFSET_OUT_OF_RANGE and (
        one.request.fetch_offset > log.log_end_offset
    ):
        code = ErrorCode.OFFSET_NOT_AVAILABLE  # the leader has it perhaps
    planned = refused(reading, one, code)
    if reading.is_follower:
        planned.data.log_start_offset = log.log_start_offset  # a new copy begins there
    return planned


def _followed(
    services: FetchServices, reading: Reading, topic: Topic, one: WantedPartition
) -> Log | None:
    """Return the log that a follower copies, also one that is not served any more."""
    if services.followers is None:
        return None
    return services.followers.log_for(topic, one.request.partition, reading.follower_id)


def _follow(
    services: FetchServices, reading: Reading, topic: Topic, one: WantedPartition
) -> int | None:
    """Note how far a follower has come; return the bytes it may copy, None if it may not."""
    log, request = _followed(services, reading, topic, one), one.request
    if log is None or services.followers is None:
        return None
    copied = request.fetch_offset if request.log_start_offset >= 0 else -1
    return services.followers.note(log, reading.follower_id, reading.copy_number, copied)
