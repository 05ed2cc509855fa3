"""Actions on topics: create, alter, empty and delete them.

    POST /api/topics/create {"topic", "partitions", "configs": {name: value}}
    POST /api/topics/alter  {"topic", "set": {name: value}, "delete": [name], "partitions"}
    POST /api/topics/empty  {"topic", "partition", "before"}
    POST /api/topics/delete {"topic"}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.metadata.store import ResourceType
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.ends import find_ends
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.console.settings import Setting, describe
from odradek.broker.web.console.words import count_words, span_words
from odradek.broker.web.requests import Problem, require_partition
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TIMEOUT_MS = 30_000
_DEFAULT = -1
_HIGH_WATERMARK = -1
_SET, _DELETE = 0, 1
_PARTITIONS_MAX = 1_000_000
_POLICY = "cleanup.policy"


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the actions on topics."""
    plans = TopicActions(asker)
    return (
        Action("create", ("topic", "partitions", "configs"), plans.create),
        Action("alter", ("topic", "set", "delete", "partitions"), plans.alter),
        Action("empty", ("topic", "partition", "before"), plans.empty),
        Action("delete", ("topic",), plans.delete),
    )


class TopicActions:
    """Plans actions on topics."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def create(self, actor: Actor, body: Body) -> Plan:
        """Create a topic."""
        name, configs = body.text("topic"), body.named_texts("configs")
        partitions = body.number("partitions", 1, _PARTITIONS_MAX)

        async def ask(*, validate_only: bool) -> CreatableTopicResult:
            topic = CreatableTopic(
                name=name,
                num_partitions=_DEFAULT if partitions is None else partitions,
                replication_factor=_DEFAULT,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
            )
            request = CreateTopicsRequest(
                topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=validate_only
            )
            answer = await self._asker.ask(actor, request, CreateTopicsResponse)
            result = answer.topics[0]
            require(result.error_code, result.error_message)
            return result

        async def carry_out() -> Sequence[str]:
            made = await ask(validate_only=False)
            return [f"Topic {name} was created with {_partitions(made.num_partitions)}."]

        checked = await ask(validate_only=True)
        will = [f"Create topic {name} with {_partitions(checked.num_partitions)}."]
        return Plan([*will, *(f"Set {key} to {configs[key]}." for key in configs)], carry_out)

    async def alter(self, actor: Actor, body: Body) -> Plan:
        """Alter the settings of a topic, and add partitions."""
        topic, wanted = self._asker.topic(body.text("topic")), body.named_texts("set")
        removed, partitions = body.texts("delete"), body.number("partitions", 1, _PARTITIONS_MAX)
        if not wanted and not removed and partitions is None:
            raise Problem(400, "nothing is to be altered: give set, delete or partitions")

        async def ask(*, validate_only: bool) -> Sequence[str]:
            done = list[str]()
            if wanted or removed:
                await self._alter(actor, topic, wanted, removed, validate_only=validate_only)
                done.append(f"The settings of topic {topic.name} were altered.")
            if partitions is not None:
                await self._enlarge(actor, topic, partitions, validate_only=validate_only)
                done.append(f"Topic {topic.name} has {_partitions(partitions)} now.")
            return done

        former = await describe(self._asker, actor, ResourceType.TOPIC, topic.name)
        # Kafka's protocol deletes a setting that there is not without an error.
        for key in removed:
            if key not in former:
                raise Problem(400, f"{key} is not a setting of topics")
        await ask(validate_only=True)
        will = [_change(former[key], wanted[key]) for key in wanted]
        will += [f"Remove {key}, which is {former[key].value} now." for key in removed]
        warnings = list[str]()
        if _POLICY in wanted:
            warnings = _warn_of_policy(wanted, former)
        if partitions is not None:
            added = partitions - len(topic.partitions)
            will.append(f"Add {_partitions(added)} to topic {topic.name}: {partitions} in all.")
            warnings.append(
                "Producers choose partitions by key: records of a key may go to another partition "
                "from now on, and compaction keeps one last value of the key in each."
            )
        return Plan(will, lambda: ask(validate_only=False), warnings)

    async def _alter(
        self,
        actor: Actor,
        topic: Topic,
        wanted: Mapping[str, str],
        removed: Sequence[str],
        *,
        validate_only: bool,
    ) -> None:
        configs = [
            AlterableConfig(name=key, config_operation=_SET, value=wanted[key]) for key in wanted
        ]
        configs += [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in removed
        ]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        answer = await self._asker.ask(actor, request, IncrementalAlterConfigsResponse)
        require(answer.responses[0].error_code, answer.responses[0].error_message)

    async def _enlarge(
        self, actor: Actor, topic: Topic, count: int, *, validate_only: bool
    ) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)],
            timeout_ms=_TIMEOUT_MS,
            validate_only=validate_only,
        )
        answer = await self._asker.ask(actor, request, CreatePartitionsResponse)
        require(answer.results[0].error_code, answer.results[0].error_message)

    async def empty(self, actor: Actor, body: Body) -> Plan:
        """Delete the first records of a topic: all of them, or those before an offset."""
        topic = self._asker.topic(body.text("topic"))
        number, before = body.number("partition", 0, _PARTITIONS_MAX), body.number("before")
        if before is not None and number is None:
            raise Problem(400, "an offset is of one partition: give partition, too")
        if number is not None:
            require_partition(topic, number)
        if topic.config.compact and not topic.config.delete:
            raise Problem(
                409,
                f"topic {topic.name} is only compacted, so its records end by tombstones: set "
                "cleanup.policy to compact,delete first, or delete the topic and create it again",
            )
        self._asker.require_right(actor, AclOperation.DELETE, ResourceKind.TOPIC, topic.name)
        numbers = range(len(topic.partitions)) if number is None else [number]
        ends = await find_ends(self._asker, actor, topic, numbers)
        # The first offsets now and then, where records are deleted.
        moves = {one: (start, _then(before, end)) for one, (start, end) in sorted(ends.items())}
        moves = {one: (start, then) for one, (start, then) in moves.items() if start < then}
        rows = [
            {"partition": one, "start_offset": start, "start_then": then}
            for one, (start, then) in moves.items()
        ]
        gone = sum(then - start for start, then in moves.values())

        async def carry_out() -> Sequence[str]:
            for leader, owned in self._asker.leaders(topic, numbers).items():
                await self._delete_records(actor, topic, leader, owned, before)
            return [f"The records of topic {topic.name} were deleted in {_partitions(len(rows))}."]

        will = [f"Delete the records at {count_words(gone, 'offset')} of {topic.name}."]
        return Plan(will, carry_out, ["The records cannot be brought back."], rows)

    async def _delete_records(
        self, actor: Actor, topic: Topic, leader: int, numbers: Sequence[int], before: int | None
    ) -> None:
        offset = _HIGH_WATERMARK if before is None else before
        partitions = [
            DeleteRecordsPartition(partition_index=one, offset=offset) for one in numbers
        ]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=partitions)],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await self._asker.ask(actor, request, DeleteRecordsResponse, leader)
        for one in answer.topics[0].partitions:
            require(one.error_code, None, f"{topic.name}-{one.partition_index}")

    async def delete(self, actor: Actor, body: Body) -> Plan:
        """Delete a topic with its records."""
        topic = self._asker.topic(body.text("topic"))
        self._asker.require_right(actor, AclOperation.DELETE, ResourceKind.TOPIC, topic.name)

        async def carry_out() -> Sequence[str]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=topic.name)], timeout_ms=_TIMEOUT_MS
            )
            answer = await self._asker.ask(actor, request, DeleteTopicsResponse)
            require(answer.responses[0].error_code, answer.responses[0].error_message)
            return [f"Topic {topic.name} was deleted."]

        warnings = ["The records cannot be brought back."]
        if topic.is_internal:
            warnings.append("It is an internal topic, with the state of groups or transactions.")
        will = [f"Delete topic {topic.name} with its {_partitions(len(topic.partitions))}."]
        return Plan(will, carry_out, warnings)


def _then(before: int | None, end: int) -> int:
    """Return the first offset of a partition after its records below an offset, or all, go."""
    return end if before is None else min(before, end)


def _partitions(count: int) -> str:
    return count_words(count, "partition")


def _change(former: Setting, value: str) -> str:
    if former.value == value and former.is_own:
        return f"Leave {former.name} at {value}."
    return f"Set {former.name} to {value}: it is {former.value} now, {former.source_text}."


def _warn_of_policy(wanted: Mapping[str, str], former: Mapping[str, Setting]) -> list[str]:
    """Return warnings of the effects of a new cleanup.policy on stored records."""
    new, old = set(wanted[_POLICY].split(",")), set((former[_POLICY].value or "").split(","))
    warnings = []
    if "compact" in new - old:
        warnings.append(
            "Compaction keeps the last record of each key. Producers may not send records without "
            "a key any more."
        )
    if "delete" in new - old:
        limits = {
            key: wanted.get(key) or former[key].value or ""
            for key in ("retention.ms", "retention.bytes")
        }
        span = limits["retention.ms"]
        words = f" ({span_words(int(span))})" if span.isdigit() else ""
        warnings.append(
            f"Records beyond the retention are deleted: retention.ms={span}{words}, "
            f"retention.bytes={limits['retention.bytes']}."
        )
    return warnings
