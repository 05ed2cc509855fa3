"""The topics that a fetch refuses because its client may not read them.

A consumer needs permission for each topic; a follower needs one permission, for the cluster. The
answer for a denied topic does not show whether the topic exists.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from odradek.broker.context import RequestContext
from odradek.broker.fetch.sessions import WantedPartition
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.registry import Topics


class _Everything:
    """A container that contains every object."""

    def __contains__(self, one: object) -> bool:
        return True


_EVERYTHING = _Everything()


def denied_topics(
    topics: Topics,
    context: RequestContext,
    wanted: Iterable[WantedPartition],
    *,
    is_follower: bool,
) -> Container[str | None]:
    """Return the names of the wanted topics that the client may not read.

    A topic that was wanted by an id that is known by now gets its name. Two calls with the same
    outcome return equal values, because a session compares them.
    """
    if is_follower and not context.may_to_cluster(AclOperation.CLUSTER_ACTION):
        return _EVERYTHING
    if is_follower:
        return ()
    names: set[str] = set()
    for one in wanted:
        if one.topic is None:
            topic = topics.by_id(one.topic_id)
            one.topic = topic.name if topic is not None else None
        if one.topic is not None:
            names.add(one.topic)
    return tuple(sorted(names - context.permitted(AclOperation.READ, ResourceKind.TOPIC, names)))
