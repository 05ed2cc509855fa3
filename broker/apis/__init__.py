"""One module an API: its handler. Handlers and messages are imported when a client first asks.

So the broker listens sooner. `broker/api_table.py` has the APIs and their versions.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields

from broker.api_table import Api
from broker.handlers import Handle
from protocol.messages import message_classes, snake_case
from protocol.schema import info_of


@dataclass(frozen=True, slots=True)
class Handler:
    """What serving an API takes: its function and its request class."""

    api: Api
    handle: Handle
    request: type
    first: int
    flexible_from: int
    tells_error: bool  # its response has an error code for all of it
    is_brief: bool  # a short request is served in one piece


# Clients send these all the time, and a response is about as large as its request, or mostly
# records: to begin a slice (broker/loop/slices.py) for a short one would cost a tenth of its time.
_BRIEF = frozenset((
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "FindCoordinator",
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "ApiVersions", "InitProducerId",
    "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
    "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge",
))  # fmt: skip


def load(api: Api) -> Handler:
    """Import an API's handler and messages."""
    module = importlib.import_module(f"broker.apis.{snake_case(api.name)}")
    request, response = message_classes(api.name)
    info = info_of(request)
    tells_error = any(one.name == "error_code" for one in fields(response))
    return Handler(
        api,
        module.handle,
        request,
        info.versions.first,
        info.flexible.first,
        tells_error,
        api.name in _BRIEF,
    )
