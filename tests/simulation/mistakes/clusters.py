"""Mistakes about sessions, leaders, copies and producers that a simulated cluster has to find."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.catalog import store
from odradek.broker.catalog.membership import Membership
from odradek.broker.composition import Broker
from odradek.broker.fetch import plans
from odradek.broker.reassignment.followers import Followers
from odradek.broker.topics.following import FollowingTopics
from odradek.broker.transactions.remote import RemoteTransactions
from odradek.storage.producers import ProducerStates


def serve_without_session(patch: pytest.MonkeyPatch) -> None:
    """A broker whose session has ended goes on serving."""
    patch.setattr(Membership, "_stop_serving", lambda self: None)


def change_without_session(patch: pytest.MonkeyPatch) -> None:
    """A store does not look at its session."""
    patch.setattr(store, "check_session", lambda connection, epoch: None)


def skip_changes(patch: pytest.MonkeyPatch) -> None:
    """A broker overlooks some of the others' changes."""
    follow, count = FollowingTopics.follow, 0

    async def forgetful(self: Any, *news: Any) -> None:
        nonlocal count
        count += 1
        if count % 8:
            await follow(self, *news)

    patch.setattr(FollowingTopics, "follow", forgetful)


def forget_sequences(patch: pytest.MonkeyPatch) -> None:
    """A log takes a batch again that a producer has sent again."""
    patch.setattr(ProducerStates, "check", lambda self, batch, *, from_client: None)


def forget_aborted(patch: pytest.MonkeyPatch) -> None:
    """A fetch does not name aborted transactions."""
    patch.setattr(plans, "find_aborted", lambda log, offset, found: [])


def write_no_markers(patch: pytest.MonkeyPatch) -> None:
    """A coordinator takes the other brokers' markers for written."""

    async def write(self: Any, marker: Any, partitions: Any) -> dict[Any, Any]:
        return {}

    patch.setattr(RemoteTransactions, "write", write)


def hand_over_early(patch: pytest.MonkeyPatch) -> None:
    """A leader does not wait until another host has copied the end of a log."""
    patch.setattr(Followers, "_has_all", lambda self, log, node_id: True)


def take_copies_for_complete(patch: pytest.MonkeyPatch) -> None:
    """A leader takes each copy for complete."""
    note = Followers.note

    def complete(self: Any, log: Any, node_id: int, copy_number: int, offset: int) -> Any:
        return note(self, log, node_id, copy_number, log.log_end_offset)

    patch.setattr(Followers, "note", complete)


def serve_beyond_leases(patch: pytest.MonkeyPatch) -> None:
    """A broker serves for half a lease longer than the catalog has granted."""
    extend = Membership._extend

    def late(self: Membership, began: float) -> None:
        extend(self, began + self.lease_ms / 2_000)

    patch.setattr(Membership, "_extend", late)


def leave_before_serving_ends(patch: pytest.MonkeyPatch) -> None:
    """A broker that stops closes its session while it still serves."""
    stop = Broker.stop

    async def leave_first(self: Broker) -> None:
        assert isinstance(self.store, store.CatalogStore)
        await self.store.leave(self.node_id)
        await stop(self)

    patch.setattr(Broker, "stop", leave_first)
