"""The brokers of a cluster, and the partitions that each leads.

A broker without a catalog is the only member, and leads every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

from odradek.broker.hosts.listener import Listener
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass

NO_LEADER = -1
# The host of a shared partition: its files are in the bucket.
ANY_HOST = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that a broker advertises on a listener."""

    name: str
    host: str
    port: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Member:
    """A broker as others see it; `host` names its log directories, which it alone may use."""

    node_id: int
    host: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address on a listener, None when the broker has no such listener."""
        return next((one for one in self.endpoints if one.name == listener), None)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, by its node id; NO_LEADER while no broker can lead it.

    `replica` is the broker that leads it, or led it last. `host` names the log directories with
    the partition's files; it is ANY_HOST for a shared partition. `is_made` says that the files
    have been created, so that their absence is a loss. `target` is the broker that is to lead it,
    NO_LEADER without one; `move` counts the targets that there have been.
    """

    node_id: int
    epoch: int
    host: str
    replica: int
    is_made: bool = False
    target: int = NO_LEADER
    move: int = 0

    def with_target(self, node_id: int) -> Leader:
        """Return the leader with another broker as its target."""
        if node_id == self.target:
            return self
        return replace(self, target=node_id, move=self.move + 1)

    @property
    def is_shared(self) -> bool:
        """Whether any broker can lead the partition."""
        return self.host == ANY_HOST

    @classmethod
    def of(cls, member: Member, *, is_shared: bool = False) -> Leader:
        """Return the first leader of a new partition."""
        return cls(member.node_id, 0, ANY_HOST if is_shared else member.host, member.node_id)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker for the clients of a listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Lease:
    """The time until which a broker may serve; one without a catalog may serve forever.

    Each request looks at it: a process that was stopped and goes on may read a request before its
    timers.
    """

    __slots__ = ("end_ns", "on_end")

    def __init__(self) -> None:
        # By perf_counter_ns().
        self.end_ns = INT64_MAX
        # Called for a request that comes later.
        self.on_end: Callable[[], None] = lambda: None


class Brokers:
    """The members that are alive, as this broker knows them; the event loop owns it."""

    def __init__(self, own: Member) -> None:
        self.own = own
        self.lease = Lease()
        self._members: Mapping[int, Member] = {own.node_id: own}
        # Those of the members, without those that have none.
        self.racks = _racks([own])
        # The brokers that have stopped, and may come back.
        self.absent: Sequence[Member] = ()
        self._addresses: dict[str, Sequence[Address]] = {}  # by listener
        # A number that grows when members come, go or change.
        self.revision = 0

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members by node id, including this broker."""
        return iter(self._members.values())

    def __contains__(self, node_id: object) -> bool:
        """Return whether a member is alive."""
        return node_id in self._members

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def count_elsewhere(self) -> int:
        """Return the number of members on other hosts."""
        return sum(one.host != self.own.host for one in self)

    def get(self, node_id: int) -> Member | None:
        """Return a member, None when it is not alive."""
        return self._members.get(node_id)

    def closest(self, partition: str, rack: str) -> int | None:
        """Return the member of a rack from which its consumers read a partition, as all do."""
        return max(
            (one.node_id for one in self if one.rack == rack),
            key=lambda node_id: crc32(f"{partition} {node_id}".encode()),
            default=None,
        )

    def closest_elsewhere(self, partition: str, node_id: int) -> list[int]:
        """Return the members that are closest to consumers outside the rack of a member."""
        member = self._members.get(node_id)
        others = self.racks - {None if member is None else member.rack}
        found = (self.closest(partition, rack) for rack in sorted(others))
        return [one for one in found if one is not None]

    def addresses(self, listener: Listener) -> Sequence[Address]:
        """Return the address of each member for the clients of a listener.

        A broker without such a listener is left out, as in Kafka.
        """
        found = self._addresses.get(listener.name)
        if found is None:
            some = (self.address(node_id, listener) for node_id in self._members)
            found = [one for one in some if one is not None]
            self._addresses[listener.name] = found
        return found

    def address(self, node_id: int, listener: Listener) -> Address | None:
        """Return the address of a member, None when the listener's clients cannot reach it."""
        member = self._members.get(node_id)
        if member is None:
            return None
        if member is self.own:
            host, port = listener.advertised_host, listener.advertised_port
            return Address(node_id, host, port, member.rack)
        endpoint = member.endpoint(listener.name)
        if endpoint is None:
            return None
        return Address(node_id, endpoint.host, endpoint.port, member.rack)

    @property
    def controller_id(self) -> int:
        """The broker that clients are sent to for changes; each can carry them out."""
        return self.own.node_id

    def absent_addresses(self, listener: Listener) -> Sequence[Address]:
        """Return the last address of each absent broker for the clients of a listener."""
        found = ((one, one.endpoint(listener.name)) for one in self.absent)
        return [Address(one.node_id, at.host, at.port, one.rack) for one, at in found if at]

    def forget(self, node_id: int) -> None:
        """Forget an absent broker."""
        self.absent = [one for one in self.absent if one.node_id != node_id]

    def follow(self, members: Iterable[Member], absent: Sequence[Member] = ()) -> None:
        """Take over the members that are alive now, and those that are not."""
        found = {one.node_id: one for one in members}
        found.setdefault(self.own.node_id, self.own)
        self._members = dict(sorted(found.items()))
        self.racks = _racks(found.values())
        self.absent = absent
        self._addresses.clear()
        self.revision += 1


def _racks(members: Iterable[Member]) -> frozenset[str]:
    return frozenset(one.rack for one in members if one.rack is not None)
