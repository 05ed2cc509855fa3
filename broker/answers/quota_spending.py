"""Counts partitions against a client's quota, at the place where topics change."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.context import RequestContext


def spending(context: RequestContext, strict_since: int) -> Callable[[int], None]:
    """Return a function that counts the partitions that a request creates or deletes.

    It raises Refusal once there are too many, for versions whose clients know that (KIP-599).
    """
    charge = context.charge
    if charge is None:
        return _spend_nothing
    is_strict = context.api_version >= strict_since
    return lambda count: charge.spend(count, is_strict=is_strict)


def _spend_nothing(_: int) -> None:
    """Count nothing: no quota is set."""
