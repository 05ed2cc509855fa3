"""The membership of a group: its members, their protocols, its leader, and parked requests.

A member joins (JoinGroup) and gets the generation, then syncs (SyncGroup) and gets its
assignment; both requests may be parked until the others have come. A static member keeps its
place across restarts by its instance id (KIP-345). A pending member has an id but has not come
back with it yet (KIP-394).

This module has no clock, does no I/O and sends no answers: rebalance.py decides the consequences
of a change of membership. Kafka's source: ClassicGroup, ClassicGroupMember.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import field

from odradek.broker.coordination.effects import Caller
from odradek.broker.orders.java import hash_places, hash_spread
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""Assignors by name with a member's subscription for each, the preferred one first."""


@dataclass(slots=True)
class Member:
    """A member of a group, owned by its Membership."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # A new member has had no answer yet: its session runs even while its request is parked.
    is_new: bool = False
    parked_join: Caller | None = None
    parked_sync: Caller | None = None
    # The place in Kafka's HashMap depends on both: the spread hash of the id, and the number of
    # members that had come to the group before this one.
    spread: int = field(default=0, compare=False)
    arrival: int = field(default=0, compare=False)

    def metadata(self, protocol: str) -> bytes:
        """Return the member's subscription for a protocol, empty when it has none."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def keeps_session_by_waiting(self) -> bool:
        """Return whether a parked request replaces heartbeats."""
        waits = self.parked_join is not None or self.parked_sync is not None
        return waits and not self.is_new


@dataclass(slots=True)
class Membership:
    """The members of one group, owned by its ClassicGroup."""

    # An OrderedDict finds its first key at once, however many keys before it were removed.
    members: OrderedDict[str, Member] = field(default_factory=OrderedDict)
    member_by_instance: dict[str, str] = field(default_factory=dict)
    # In the order in which they got their ids.
    pending_joins: dict[str, None] = field(default_factory=dict)
    # Members of the present generation whose SyncGroup has not come yet.
    pending_syncs: set[str] = field(default_factory=set)
    leader_id: str | None = None
    parked_join_count: int = 0
    supporters: Counter[str] = field(default_factory=Counter)
    arrival_count: int = 0
    # The largest number of members that the group had at once.
    peak_count: int = 0

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def get(self, member_id: str) -> Member | None:
        """Return a member by its id."""
        return self.members.get(member_id)

    def all(self) -> Iterable[Member]:
        """Return the members in the order in which they came."""
        return self.members.values()

    def in_order(self) -> list[Member]:
        """Return the members in Kafka's order, that of a HashMap.

        The peak number of members determines the size of its table; in one place, keys are in the
        order in which they came. (Java turns a place of eight into a tree; this does not.)
        """
        last_place = hash_places(self.peak_count) - 1

        def place(member: Member) -> tuple[int, int]:
            return member.spread & last_place, member.arrival

        return sorted(self.members.values(), key=place)

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.member_by_instance
            self.member_by_instance[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._note_arrival(member)
        self.supporters.update(name for name, _ in member.protocols)
        self.parked_join_count += member.parked_join is not None
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member; a leader is replaced by another member.

        Its parked requests are lost: the caller must answer them first.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._withdraw_support(member.protocols)
            self.parked_join_count -= member.parked_join is not None
            if member.instance_id is not None:
                self.member_by_instance.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static(self, old: Member, new_member_id: str) -> Member:
        """Give a static member's place to a new id; the old one must have no parked request."""
        assert old.instance_id is not None
        assert old.parked_join is None and old.parked_sync is None
        new = Member(
            member_id=new_member_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        # The new id takes the old one's place, which keeps the order in which members came.
        self.members = OrderedDict(
            (new_member_id, new) if key == old.member_id else (key, member)
            for key, member in self.members.items()
        )
        self._note_arrival(new)
        self.member_by_instance[old.instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        self.pending_syncs.discard(old.member_id)
        return new

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Change the protocols that a member supports."""
        self._withdraw_support(member.protocols)
        member.protocols = protocols
        self.supporters.update(name for name, _ in protocols)

    def park_join(self, member: Member, caller: Caller) -> Caller | None:
        """Park a JoinGroup; return the earlier one of the same member, if there is one."""
        displaced = self.unpark_join(member)
        member.parked_join = caller
        self.parked_join_count += 1
        return displaced

    def unpark_join(self, member: Member) -> Caller | None:
        """Remove and return a member's parked JoinGroup, so that the caller can answer it."""
        caller = member.parked_join
        if caller is not None:
            member.parked_join = None
            self.parked_join_count -= 1
        return caller

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a request in the name of a member, NONE if the member exists."""
        if instance_id is not None:
            current = self.member_by_instance.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports_any(self, names: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self.supporters[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """Choose a protocol that all members support; each votes for its first such protocol."""
        candidates = {name for name, n in self.supporters.items() if n == len(self.members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        # With equal votes, the protocol with the earliest vote wins.
        return max(votes, key=votes.__getitem__)

    def all_joined(self) -> bool:
        """Return whether all members have joined, and none is pending."""
        return self.parked_join_count == len(self.members) and not self.pending_joins

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; return False when none has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].parked_join is not None:
            return True
        for member in self.members.values():
            if member.parked_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of a member."""
        return max((0, *(m.rebalance_timeout_ms for m in self.members.values())))

    def _note_arrival(self, member: Member) -> None:
        member.spread = hash_spread(member.member_id)
        member.arrival = self.arrival_count
        self.arrival_count += 1
        self.peak_count = max(self.peak_count, len(self.members))

    def _withdraw_support(self, protocols: Protocols) -> None:
        for name, _ in protocols:
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]
