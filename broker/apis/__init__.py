"""The API table: the APIs that the broker serves, their versions and their handlers.

Handlers and messages are imported when a client first asks for an API, so that the broker listens
sooner; a test compares the ranges with the declarations. Produce is advertised from version 0
on because librdkafka needs it (KAFKA-18659), and served from version 3 on, as in Kafka 4.
"""

from __future__ import annotations

import importlib
from dataclasses import fields

from odradek.broker.api_table import Api
from odradek.broker.handlers import Grounds, Handle, Stamp
from odradek.dataclass import dataclass
from odradek.protocol.messages import message_classes, snake_case
from odradek.protocol.schema import info_of


@dataclass(frozen=True, slots=True)
class Handler:
    """The function and the request class that serve an API."""

    api: Api
    handle: Handle
    request: type
    first: int
    flexible_from: int
    has_error_code: bool  # the response has an error code at its top level
    is_brief: bool  # short requests are served in one piece
    is_administrative: bool  # its effect depends on metadata that other brokers may change
    stamp: Stamp | None  # of answers that may be sent again
    grounds: Grounds | None  # of these, if they depend on more than their stamp


# Clients send these requests all the time, and a response is about as large as its request, or
# consists mostly of records. To begin a slice (broker/loop/slices.py) for a short request would
# take a tenth of its time.
_BRIEF = frozenset((
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "FindCoordinator",
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "ApiVersions", "InitProducerId",
    "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
    "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge",
    "StreamsGroupHeartbeat",
))  # fmt: skip

# A client may send each of these to a broker, and the next to another: they are decided by the
# metadata, as Kafka's controller decides them. DeleteRecords and ElectLeaders change none, but
# are about topics that may be new.
_ADMINISTRATIVE = frozenset((
    "CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "ElectLeaders",
    "AlterPartitionReassignments", "AlterReplicaLogDirs", "AlterConfigs",
    "IncrementalAlterConfigs", "CreateAcls", "DeleteAcls", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "AlterClientQuotas",
    "AlterUserScramCredentials", "UpdateFeatures", "UnregisterBroker",
))  # fmt: skip


def load(api: Api) -> Handler:
    """Import an API's handler and messages."""
    module = importlib.import_module(f"odradek.broker.apis.{snake_case(api.name)}")
    request, response = message_classes(api.name)
    info = info_of(request)
    has_error_code = any(one.name == "error_code" for one in fields(response))
    return Handler(
        api,
        module.handle,
        request,
        info.versions.first,
        info.flexible.first,
        has_error_code,
        api.name in _BRIEF,
        api.name in _ADMINISTRATIVE,
        getattr(module, "stamp", None),
        getattr(module, "grounds", None),
    )
