"""Mistakes of coordinators of groups and transactions that a simulated cluster has to find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from odradek.broker.groups import commits
from odradek.broker.groups.records import KeyValue
from odradek.broker.groups.replaying import OffsetReplay
from odradek.broker.transactions.shard import TransactionShard
from odradek.protocol.errors import ErrorCode
from odradek.storage import copying


def forget_prepared_ends(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over does not write the markers of prepared ends."""
    patch.setattr(TransactionShard, "loaded", lambda self, now_ms: [])


def lose_markers_in_copies(patch: pytest.MonkeyPatch) -> None:
    """A copy of a log takes no notice of its markers."""
    patch.setattr(copying, "read_marker", lambda header, batch: None)


def replay_first_offsets(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over has the first offset that was committed, not the last."""
    take_in = OffsetReplay.take_in
    seen: defaultdict[OffsetReplay, set[bytes]] = defaultdict(set)

    def first(self: OffsetReplay, records: Sequence[KeyValue], start: int) -> int:
        for at in range(start, len(records)):
            key, value = records[at]
            if key in seen[self] and value is not None:
                continue
            if not take_in(self, [records[at]], 0):
                return at
            seen[self].add(key)
        return len(records)

    patch.setattr(OffsetReplay, "take_in", first)


def let_former_members_commit(patch: pytest.MonkeyPatch) -> None:
    """A group takes the offsets of a member that another one has replaced."""
    patch.setattr(commits, "commit_problem", lambda group, request: ErrorCode.NONE)
