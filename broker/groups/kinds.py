"""The groups of a partition, one dictionary for each kind, and one order for all of them.

Kafka keeps groups of every kind in one TimelineHashMap, and lists them in its order. Here each
kind has a dictionary of its own, so that a look-up costs nothing more; all dictionaries note added
and removed groups in one Timeline. Kafka's source: GroupMetadataManager.groups.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from odradek.broker.groups.modern.tables import Timeline

G = TypeVar("G")


class GroupsOfKind(dict[str, G]):
    """Groups of one kind by their ids; owned by the Shard.

    An id that changes its kind keeps its place if it is added to the new dictionary before it is
    removed from the old one. (`setdefault` and `update` are not noted.)
    """

    __slots__ = ("_order",)

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order

    def __setitem__(self, group_id: str, group: G) -> None:
        self._order[group_id] = self
        super().__setitem__(group_id, group)

    def __delitem__(self, group_id: str) -> None:
        super().__delitem__(group_id)
        self._release(group_id)

    def pop(self, group_id: str, default: Any = None) -> Any:
        """Remove a group, and return it."""
        group = super().pop(group_id, default)
        self._release(group_id)
        return group

    def _release(self, group_id: str) -> None:
        if self._order.get(group_id) is self:
            del self._order[group_id]


Order: TypeAlias = Timeline[GroupsOfKind[Any]]
"""The ids of all groups, each with the dictionary of its kind."""
