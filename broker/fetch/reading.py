"""The limits and rights of one fetch."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from odradek.broker.context import RequestContext
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.protocol.messages.fetch import FetchRequest

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_STORAGE_ERROR_SINCE = 6
_REPLICA_STATE_SINCE = 15
_LEADER_ADDRESS_SINCE = 16
# The replica id of a broker that moves a partition between its own directories.
_FUTURE_REPLICA = -3


@dataclass(slots=True)
class Reading:
    """The limits and the isolation level of a request."""

    is_committed: bool
    is_follower: bool
    leader_id: int | None  # None for versions that cannot name the leader (KIP-951)
    knows_storage_errors: bool
    size_min: int
    size_max: int
    # Topics that the client may not read, whether they exist or not.
    denied: Container[str | None] = ()
    # The broker that copies partitions, and the number of its copy; a later one has a higher one.
    follower_id: int = -1
    copy_number: int = -1
    # The consumer and its rack; "" for one that reads from leaders only.
    client_id: str = ""
    rack: str = ""


class ReadingServices(Protocol):
    """The parts of a broker that the limits depend on."""

    node_id: int

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""

    @property
    def backpressure(self) -> Unsent:
        """The responses that clients have not read yet."""

    @property
    def replicas(self) -> object | None:
        """None where no topic is in a bucket."""


class Unsent(Protocol):
    """The responses that clients have not read yet."""

    unsent_bytes: int


def reading_of(
    services: ReadingServices, context: RequestContext, request: FetchRequest
) -> Reading:
    """Return the limits and rights of a request."""
    version = context.api_version
    replica_id, copy_number = request.replica_id, -1
    if version >= _REPLICA_STATE_SINCE:
        replica = request.replica_state
        replica_id, copy_number = replica.replica_id, replica.replica_epoch
    is_consumer = replica_id < 0 and replica_id != _FUTURE_REPLICA
    config = services.config
    # The bytes that clients have not read yet are bounded: without room the answer has one batch.
    room = config.odradek_unsent_bytes_max - services.backpressure.unsent_bytes
    size_max = min(request.max_bytes, config.fetch_max_bytes, max(room, 0))
    if context.charge is not None and replica_id < 0:  # followers have a throttle of their own
        size_max = min(size_max, context.charge.fetch_bytes_max())
    return Reading(
        is_committed=is_consumer and request.isolation_level == READ_COMMITTED,
        is_follower=replica_id >= 0,
        leader_id=services.node_id if version >= _LEADER_ADDRESS_SINCE else None,
        knows_storage_errors=version >= _STORAGE_ERROR_SINCE,
        size_min=min(request.min_bytes, size_max),
        size_max=size_max,
        follower_id=replica_id,
        copy_number=copy_number,
        client_id=context.client_id,
        rack=request.rack_id if is_consumer and services.replicas is not None else "",
    )
