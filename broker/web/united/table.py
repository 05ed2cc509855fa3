"""The workers that answer each route: a test compares this with the routes of a broker.

    own         the worker that the client has reached
    leader      the worker that leads the partition that the request names
    all         all workers, whose answers are merged
    private     only the other workers of the machine ask
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from odradek.broker.web.console.routes import ACTION_PATHS, VIEWS
from odradek.broker.web.united import merged_objects, merged_records, merging
from odradek.broker.web.united.merging import Merge
from odradek.dataclass import dataclass

# Prometheus waits for 10 s.
_PATIENCE_S = 8.0


class Turns(Enum):
    """The kinds of requests of which only some are answered at a time."""

    LISTS = "merge lists of all workers"
    READS = "look at logs of all workers"
    SCRAPES = "read metrics of all workers"


class Asked(Enum):
    """The workers that are asked first, unless the request names a partition."""

    ALL = 0
    COORDINATOR = 1  # of the group that the request names
    # The leader of the partition where the key belongs; the others if it does not have the key.
    LEADER_OF_KEY = 2


@dataclass(frozen=True, slots=True)
class Route:
    """The workers that answer a route."""

    # None when the answers are not merged.
    merge: Merge | None = None
    # Whether a request that names a partition is answered by its leader.
    has_leader: bool = False
    asked: Asked = Asked.ALL
    # Whether the ends of all partitions are needed, too.
    has_ends: bool = False
    turns: Turns | None = None
    # How long a worker has time; None for requests that wait for a cleaning, or read logs.
    patience_s: float | None = _PATIENCE_S
    # Whether each worker has to carry it out, else the request fails.
    is_whole: bool = False
    # Whether the answer of /health has its status.
    has_problems: bool = False
    is_private: bool = False


def _list(merge: Merge) -> Route:
    return Route(merge, turns=Turns.LISTS)


OWN = Route()
_LEADER = Route(has_leader=True)
ENDS = "/api/ends"

ROUTES: Mapping[tuple[str, str], Route] = {
    ("GET", "/"): OWN,
    ("GET", "/page"): OWN,
    ("GET", "/metrics"): Route(turns=Turns.SCRAPES),  # the only text
    ("GET", "/health"): Route(merging.health, has_problems=True),
    ("GET", "/health/live"): OWN,
    ("GET", "/health/ready"): OWN,
    ("GET", "/api/broker"): Route(merging.broker),
    ("GET", "/api/samples"): _list(merged_records.samples),
    ("GET", "/api/events"): OWN,  # its ticks are merged: broker/web/state.py
    ("GET", "/api/cluster"): OWN,  # all see the same
    ("POST", "/api/cluster/rebalance"): OWN,  # each can store the moves
    ("POST", "/api/cluster/drain"): OWN,
    ("GET", "/api/objects"): _list(merged_objects.objects),
    ("GET", "/api/topics"): _list(merging.topics),
    ("GET", "/api/topic"): _list(merging.topic),
    ("GET", "/api/groups"): Route(merged_records.groups, has_ends=True, turns=Turns.LISTS),
    ("GET", "/api/group"): Route(
        merged_records.group, asked=Asked.COORDINATOR, has_ends=True, turns=Turns.LISTS
    ),
    ("GET", ENDS): Route(is_private=True),
    ("GET", "/api/records"): Route(
        merged_records.records, has_leader=True, turns=Turns.READS, patience_s=None
    ),
    ("GET", "/api/latest"): Route(
        merged_records.records, has_leader=True, turns=Turns.READS, patience_s=None
    ),
    ("GET", "/api/get"): Route(
        merged_records.latest_of_key,
        has_leader=True,
        asked=Asked.LEADER_OF_KEY,
        turns=Turns.READS,
        patience_s=None,
        is_whole=True,
    ),
    ("GET", "/api/cleaner"): _list(merging.cleaner),
    ("GET", "/api/cleaner/plan"): Route(
        merging.plan, has_leader=True, turns=Turns.READS, patience_s=None, is_whole=True
    ),
    ("GET", "/api/cleaner/why"): _LEADER,
    ("GET", "/api/cleaner/history"): _LEADER,
    ("GET", "/api/cleaner/runs"): _list(merging.runs),
    ("POST", "/api/cleaner/run"): Route(
        merging.run, has_leader=True, patience_s=None, is_whole=True
    ),
    ("POST", "/api/cleaner/retry"): _LEADER,
    ("POST", "/api/cleaner/verify"): Route(
        merging.verify, has_leader=True, patience_s=None, is_whole=True
    ),
    ("POST", "/api/login"): OWN,  # each knows all logins
    # They ask the other brokers themselves.
    **{("GET", path): OWN for path in VIEWS},
    **{("POST", path): OWN for path in ACTION_PATHS},
}
