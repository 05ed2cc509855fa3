"""What handlers that change topics hand on, so that partitions are counted where they change."""

from __future__ import annotations

from collections.abc import Callable

from broker.context import RequestContext


def spending(context: RequestContext, strict_since: int) -> Callable[[int], None]:
    """Return what counts the partitions that a request makes or deletes.

    It raises Refusal once there were too many, from the version on that says so (KIP-599).
    """
    charge = context.charge
    if charge is None:
        return _spend_nothing
    is_strict = context.api_version >= strict_since
    return lambda count: charge.spend(count, is_strict=is_strict)


def _spend_nothing(_: int) -> None:
    """Let all pass."""
