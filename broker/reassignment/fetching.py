"""Fetches batches of one partition from its leader, as a follower does (KIP-903)."""

from __future__ import annotations

from odradek.broker.metadata.members import Leader
from odradek.broker.peers.peers import Peers
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

_VERSION = 17


class Refused(Exception):
    """The leader does not let this broker copy for now; the message has its error."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A piece of a log. Without a copy, `last_epoch` and `log_start_offset` are -1."""

    topic_id: bytes
    partition: int
    offset: int
    last_epoch: int
    log_start_offset: int
    bytes_max: int


async def fetch(
    peers: Peers, leader: Leader, own_id: int, copy_number: int, wanted: Wanted
) -> PartitionData:
    """Ask a leader for batches; return its answer. Raises PeerAway or Refused."""
    partition = FetchPartition(
        partition=wanted.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=wanted.offset,
        last_fetched_epoch=wanted.last_epoch,
        log_start_offset=wanted.log_start_offset,
        partition_max_bytes=wanted.bytes_max,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=own_id, replica_epoch=copy_number),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=wanted.bytes_max,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=wanted.topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = await peers.ask(leader.node_id, request, _VERSION, FetchResponse, _error_of)
    for one in answer.responses:
        for data in one.partitions:
            return data
    raise Refused(f"error {answer.error_code}")


def diverges(data: PartitionData) -> bool:
    """Return whether the leader has no batch after a copy that would continue it."""
    return data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or data.diverging_epoch.epoch >= 0


def _error_of(answer: FetchResponse) -> int:
    """Return the error of a request; one without rights gets it for each partition."""
    codes = {data.error_code for one in answer.responses for data in one.partitions}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED if denied else answer.error_code
