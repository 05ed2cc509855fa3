"""DescribeCluster (60): the brokers and the controller (KIP-700).

Version notes: 1 can ask controllers about themselves (KIP-919); 2 includes fenced brokers
(KIP-1073).
"""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """endpoint_type is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = field("1+", default=1)
    include_fenced_brokers: boolean = field("2+")


@struct
class DescribeClusterBroker:
    """A node, and where it listens."""

    broker_id: int32
    host: string
    port: int32
    rack: string | None = field(default=None)
    is_fenced: boolean = field("2+")


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: string
    controller_id: int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)
