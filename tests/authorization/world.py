"""What the matrix is played on: resources that principals may have rights to, and their ACLs.

Names that begin with "may-" are those that rights are given to, by one prefixed ACL a right; what
begins with "not-" is there as well, and nobody but the administrator may do anything to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import message_classes
from odradek.protocol.wire import encode_uuid
from tests.authorization.cases import Names, made
from tests.authorization.clients import ADMINISTRATOR, Client
from tests.authorization.rules import RULES, Rights
from tests.support.waiting import wait_until

MAY, NOT = "may-", "not-"
_NO_TOPIC = bytes(range(16))
NEW = "made-while-asking"
PARTITIONS = 2
_NOBODY = SimpleNamespace(topic_partitions=())
_ANONYMOUS = "User:ANONYMOUS"
_ANY = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}
LITERAL = 3
_ALL, _PREFIXED, _ALLOW = 2, 4, 3
_PRODUCER_VERSION, _TXN_TIMEOUT_MS = 4, 900_000

# What rights there are to give, one by one. DELETE of the cluster is none of Kafka's
# AclEntry.supportedOperations, and yet DeleteTopics asks for it.
SINGLE: Mapping[ResourceKind, Sequence[str]] = {
    ResourceKind.TOPIC: (
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    ),
    ResourceKind.GROUP: ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    ResourceKind.CLUSTER: (
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ),
    ResourceKind.TRANSACTIONAL_ID: ("DESCRIBE", "WRITE"),
}


ALL: Rights = frozenset(
    (AclOperation[name], kind) for kind, names in SINGLE.items() for name in names
)


def principals() -> list[Rights]:
    """Return the sets of rights to try.

    That is none, each alone, what some rule takes, all of what has a name, and all.
    """
    singles: list[Rights] = [frozenset((one,)) for one in sorted(ALL)]
    together = [way for rule in RULES for way in rule.ways if len(way) > 1]
    named: Rights = frozenset(one for one in ALL if one[1] is not ResourceKind.CLUSTER)
    return list(dict.fromkeys([frozenset(), *singles, *together, named, ALL]))


def message(api: str, version: int, **values: Any) -> Any:
    """Make a request of the values that matter."""
    return made(message_classes(api)[0], version, values)


def creation(host: str, operation: int, kind: int, name: str, pattern: int) -> dict[str, Any]:
    """Make an ACL of a host."""
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": _ANONYMOUS,
        "host": host,
        "operation": int(operation),
        "permission_type": _ALLOW,
    }


class World:
    """One broker, and the same names on it as on the other."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.administrator = Client(port)
        self.topic_ids: dict[str, bytes] = {}

    def close(self) -> None:
        """Close the administrator's connection."""
        self.administrator.close()

    def names(self, prefix: str, number: int = 0) -> Names:
        """Return what a principal's requests speak of."""
        fresh = f"{prefix}fresh-{number}"
        return Names(
            f"{prefix}topic",
            self.topic_ids.get(f"{prefix}topic", _NO_TOPIC),
            f"{prefix}group",
            f"{prefix}share",
            f"{prefix}streams",
            f"{prefix}transaction",
            fresh,
            self.topic_ids.get(fresh, _NO_TOPIC),
            f"{prefix}{NEW}-{number}",
            f"member-{number}",
        )

    def set_up(self, rights: Mapping[str, Rights]) -> None:
        """Create the ACLs and all that requests speak of."""
        self._allow_administrator()
        acls = [
            creation(
                host,
                operation,
                kind,
                CLUSTER_NAME if kind is ResourceKind.CLUSTER else MAY,
                LITERAL if kind is ResourceKind.CLUSTER else _PREFIXED,
            )
            for host, one in rights.items()
            for operation, kind in sorted(one)
        ]
        self.create_acls(acls)
        self.create_topics([f"{prefix}topic" for prefix in (MAY, NOT)], PARTITIONS)
        for prefix in (MAY, NOT):
            self._populate(prefix)

    def create_acls(self, acls: Sequence[dict[str, Any]]) -> None:
        """Create ACLs, and wait until the broker knows them."""
        answer = self.administrator.ask(message("CreateAcls", 3, creations=acls), 3)
        assert not [one for one in answer.results if one.error_code], answer
        wait_until(lambda: {one["host"] for one in acls} <= self._hosts())

    def delete_acls(self, host: str) -> None:
        """Delete the ACLs of a host, and wait until the broker does not know them any more."""
        meant = {**_ANY, "host_filter": host}
        answer = self.administrator.ask(message("DeleteAcls", 3, filters=[meant]), 3)
        assert not [one for one in answer.filter_results if one.error_code], answer
        wait_until(lambda: host not in self._hosts())

    def _hosts(self) -> set[str]:
        answer = self.administrator.ask(message("DescribeAcls", 3, **_ANY), 3)
        return {acl.host for one in answer.resources for acl in one.acls}

    def create_topics(self, names: Iterable[str], partitions: int = 1) -> None:
        """Create topics, and wait until they can be used."""
        topics = [
            {"name": name, "num_partitions": partitions, "replication_factor": 1}
            for name in names
        ]
        asking = message("CreateTopics", 7, topics=topics, timeout_ms=20_000)
        answer = self.administrator.ask(asking, 7)
        assert not [one for one in answer.topics if one.error_code], answer
        self.topic_ids |= {one.name: one.topic_id for one in answer.topics}
        named = [{"name": one["name"]} for one in topics]
        describing = message("Metadata", 12, topics=named, allow_auto_topic_creation=False)

        def is_there() -> bool:
            answer = self.administrator.ask(describing, 12)
            partitions = [one for topic in answer.topics for one in topic.partitions]
            return all(not one.error_code and one.partitions for one in answer.topics) and all(
                one.leader_id >= 0 and not one.error_code for one in partitions
            )

        wait_until(is_there)

    def existing(self, names: Iterable[str]) -> set[str]:
        """Return those topics that are there, of some."""
        named = [{"name": name} for name in names]
        asking = message("Metadata", 12, topics=named, allow_auto_topic_creation=False)
        answer = self.administrator.ask(asking, 12)
        return {one.name for one in answer.topics if not one.error_code}

    def log_directory(self) -> str:
        """Return where the broker keeps its logs."""
        answer = self.administrator.ask(message("DescribeLogDirs", 4, topics=[]), 4)
        directory: str = answer.results[0].log_dir
        return directory

    def join_by_expression(self, client: Client, group: str, expression: str) -> set[bytes]:
        """Have a member in a group, and return the ids of the topics that it is assigned."""
        joining = {
            "group_id": group,
            "member_id": f"{group}-member",
            "rebalance_timeout_ms": 900_000,
            "subscribed_topic_regex": expression,
            "topic_partitions": [],
        }
        epoch, found = 0, set[bytes]()

        def is_assigned() -> bool:
            nonlocal epoch
            asking = message("ConsumerGroupHeartbeat", 1, **joining, member_epoch=epoch)
            answer = client.ask(asking, 1)
            assert not answer.error_code, answer
            epoch = answer.member_epoch
            found.update(one.topic_id for one in (answer.assignment or _NOBODY).topic_partitions)
            return bool(found)

        wait_until(is_assigned)
        return found

    def _allow_administrator(self) -> None:
        # The cluster last: from then on only who is allowed to may create ACLs.
        kinds = [ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID]
        acls = [creation(ADMINISTRATOR, _ALL, kind, "*", LITERAL) for kind in kinds]
        cluster = ResourceKind.CLUSTER
        acls.append(creation(ADMINISTRATOR, _ALL, cluster, CLUSTER_NAME, LITERAL))
        self.create_acls(acls)

    def _populate(self, prefix: str) -> None:
        """Have a group with offsets, groups with members, and an open transaction."""
        names = self.names(prefix)
        share_partition = f"{names.share_group}:{encode_uuid(names.topic_id)}:0"
        for kind, key in enumerate((names.group, names.transactional_id, share_partition)):
            finding = message("FindCoordinator", 6, key_type=kind, coordinator_keys=[key])
            self._ask_until_done(finding, 6, lambda answer: answer.coordinators[0].error_code)
        committing = message(
            "OffsetCommit",
            9,
            group_id=names.group + "-simple",
            topics=[
                {
                    "name": names.topic,
                    "partitions": [{"partition_index": 0, "committed_offset": 1}],
                }
            ],
        )
        self._ask_until_done(
            committing, 9, lambda answer: answer.topics[0].partitions[0].error_code
        )
        slow = {"rebalance_timeout_ms": 900_000}
        self._join("ConsumerGroupHeartbeat", names.group, names.topic, **slow)
        self._join("ShareGroupHeartbeat", names.share_group, names.topic)
        self._begin_streams(names)
        self._load_share_partition(names)
        beginning = message(
            "InitProducerId",
            _PRODUCER_VERSION,
            transactional_id=names.transactional_id,
            transaction_timeout_ms=_TXN_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        begun = self._ask_until_done(
            beginning, _PRODUCER_VERSION, lambda answer: answer.error_code
        )
        adding = message(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=names.transactional_id,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": names.topic, "partitions": [0]}],
        )
        self._ask_until_done(
            adding,
            3,
            lambda answer: answer.results_by_topic_v3_and_below[0]
            .results_by_partition[0]
            .partition_error_code,
        )

    def _join(self, api: str, group: str, topic: str, **more: Any) -> None:
        """Have a member in a group, and wait until it is assigned the topic."""
        joining: dict[str, Any] = {
            "group_id": group,
            "member_id": f"{group}-member",
            "subscribed_topic_names": [topic],
            **more,
        }
        if api == "ConsumerGroupHeartbeat":
            joining["topic_partitions"] = []
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            answer = self.administrator.ask(message(api, 1, **joining, member_epoch=epoch), 1)
            if answer.error_code:
                return False
            epoch = answer.member_epoch
            return bool(answer.assignment and answer.assignment.topic_partitions)

        wait_until(is_assigned)

    def _begin_streams(self, names: Names) -> None:
        """Have a member in a streams group."""
        joining = message(
            "StreamsGroupHeartbeat",
            0,
            group_id=names.streams_group,
            member_id=f"{names.streams_group}-member",
            rebalance_timeout_ms=900_000,
            process_id="process",
            topology={
                "subtopologies": [{"subtopology_id": "0", "source_topics": [names.topic]}]
            },
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        self._ask_until_done(joining, 0, lambda answer: answer.error_code)

    def _load_share_partition(self, names: Names) -> None:
        """Wait until a share-partition is loaded, so that no later request meets it loading."""
        partitions = [{"partition_index": 0}]
        asking: dict[str, Any] = {
            "group_id": names.share_group,
            "member_id": "loader",
            "max_wait_ms": 500,
            "max_records": 1,
            "topics": [{"topic_id": names.topic_id, "partitions": partitions}],
        }

        def is_loaded() -> bool:
            answer = self.administrator.ask(message("ShareFetch", 2, **asking), 2)
            ending = {**asking, "share_session_epoch": -1, "topics": []}
            self.administrator.ask(message("ShareFetch", 2, **ending), 2)
            return bool(answer.responses)

        wait_until(is_loaded)

    def _ask_until_done(self, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """Ask until the coordinator is there and has done it."""
        found: list[Any] = []

        def is_done() -> bool:
            found[:] = [self.administrator.ask(request, version)]
            return code(found[0]) == ErrorCode.NONE

        wait_until(is_done)
        return found[0]
