"""The input and the output of a server-side assignor.

An assignment has the partitions of each topic in Kafka's order (tables.py); the order does not
change its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.dataclass import dataclass

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""

NOTHING: Assignment = {}


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """An assignor's input for a member; `topics` has only topics that exist."""

    topics: tuple[bytes, ...]
    # The number of topics that the member names, including missing topics.
    named_count: int
    instance_id: str | None
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """An assignor's input for a group."""

    # In the order in which Kafka goes through the members.
    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    partition_count: Callable[[bytes], int]
    # Returns whether the present target assignment gives a partition to a member.
    is_assigned: Callable[[bytes, int], bool]


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Computes a target assignment; members that are left out get no partitions."""
