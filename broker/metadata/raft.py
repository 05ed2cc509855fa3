"""Answers of a one-node cluster to requests that change its quorum of controllers (KIP-853).

There is no quorum. The answers are those of a Kafka node that is its own only controller, by its
settings (kraft.version 0).
"""

from __future__ import annotations

from odradek.broker.errors import Refusal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.wire import ZERO_UUID


def check_cluster(named: str | None, cluster_id: str) -> None:
    """Raise Refusal for a request that is meant for another cluster."""
    if named is not None and named != cluster_id:
        message = f'The given id "{named}" doesn\'t match the cluster id "{cluster_id}"'
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, message)


def check_voter(voter_id: int, directory_id: bytes, request: str) -> None:
    """Raise Refusal for a request without a valid voter; `request` is "Add" or "Remove"."""
    if voter_id < 0 or directory_id == ZERO_UUID:
        message = f"{request} voter request didn't include a valid voter"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def not_supported(change: str) -> Refusal:
    """Return the refusal of a change, "adding" or "removing", that would be valid otherwise."""
    message = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
    return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
