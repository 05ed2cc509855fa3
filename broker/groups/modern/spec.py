"""What a server-side assignor is given, and what it gives back.

An assignment has the partitions of each topic in the order in which Kafka has them, see
tables.py; as a set of partitions it says the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""

NOTHING: Assignment = {}


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member: the topics it reads, as far as they exist."""

    topics: tuple[bytes, ...]
    # How many topics it has named, those that do not exist included.
    named_count: int
    instance_id: str | None
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What an assignor knows of a group."""

    # In the order in which Kafka goes through them.
    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    partition_count: Callable[[bytes], int]
    # Tells whether the present target assignment gives a partition to some member.
    is_assigned: Callable[[bytes, int], bool]


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Computes a target assignment; who is left out of it is assigned nothing."""
