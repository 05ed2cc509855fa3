"""Appends the batches of one Produce request to the logs.

Each batch is checked and appended in its turn on the event loop. Batches that take long to check
go to a thread, all of a request together, and are appended when they come back. Later requests of
the same client wait for that, so that its batches keep their order.

Invariants:

1. Each partition of a request has one response, at its own place; that of a batch in a thread is a
   blank until `finish`.
2. A batch is appended in the step of the loop in which its topic, its log and, after a thread, its
   transaction were looked up.
3. `touched` has the logs that got a batch, and no others.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import Protocol

from odradek.broker.context import RequestContext
from odradek.broker.counters.topics import count_refusal
from odradek.broker.errors import code_of, message_of
from odradek.broker.metadata.members import NO_LEADER, Brokers
from odradek.broker.produce.batch_checks import BatchChecks, Verdict
from odradek.broker.produce.outcomes import (
    RefusalServices,
    accepted,
    explain,
    not_permitted,
    refusal,
)
from odradek.broker.security.principals import ANONYMOUS
from odradek.broker.topics.states import RemotePartition
from odradek.broker.topics.topic import Topic
from odradek.broker.transactions.admission import (
    TOPIC_IDS_SINCE,
    AdmissionServices,
    Refused,
    find_topic,
    forbid_ended,
)
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.protocol.batches import CODEC_MASK, LOW_ATTRIBUTES_POSITION
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.pacing import PACED_MIN, Pace, unpaced
from odradek.storage.allowance import Allowance, TooLaborious
from odradek.storage.errors import NotOneBatch, StorageError
from odradek.storage.files import Buffer
from odradek.storage.log import Log
from odradek.storage.validation import CheckedBatch, read_one

ZSTD_SINCE = 7
_ACKS = (-1, 0, 1)
# The one client that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
_ADMIN_CLIENT_ID = "__admin_client"

Appended = tuple[Log, PartitionProduceResponse]


@dataclass(slots=True)
class _Laborious:
    """A batch that a thread has to check, and the place of its response."""

    data: TopicProduceData
    partition: PartitionProduceData
    log: Log
    records: Buffer
    responses: list[PartitionProduceResponse]
    at: int


class AppendServices(AdmissionServices, RefusalServices, Protocol):
    """The parts of a broker that appending takes."""

    brokers: Brokers
    batch_checks: BatchChecks


class Appending:
    """Appends the batches of a request where possible, and builds its response.

    `refused` are partitions that are not in the transaction; `denied` are topics that the client
    may not write to. The handler of the request owns it.
    """

    __slots__ = (
        "_allowance", "_context", "_denied", "_laborious", "_now_ms", "_refused", "_request",
        "_services", "response", "touched",
    )  # fmt: skip

    def __init__(
        self,
        services: AppendServices,
        context: RequestContext,
        request: ProduceRequest,
        refused: Refused,
        denied: Set[str],
    ) -> None:
        self._services, self._context, self._request = services, context, request
        self._refused, self._denied = refused, denied
        self._now_ms = services.clock.now_ms()
        self._allowance = Allowance()
        self._laborious: list[_Laborious] = []
        self.response = ProduceResponse(responses=[])
        # The logs that were appended to, with the partitions' responses.
        self.touched: list[Appended] = []

    def begin(self, pace: Pace = unpaced) -> bool:
        """Append the batches that are quick to check; return whether that is all of them.

        With `pace` other clients may be served between two of many batches. That is not allowed
        for batches of a transaction, which could end meanwhile.
        """
        topics = self._request.topic_data
        for data in topics if len(topics) < PACED_MIN else pace(topics):
            topic = find_topic(self._services, self._context, data)
            responses: list[PartitionProduceResponse] = []
            if self._denied and (data.name if topic is None else topic.name) in self._denied:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                for partition in pace(data.partition_data):
                    responses.append(self._counted(topic, not_permitted(partition, code)))
            elif len(data.partition_data) < PACED_MIN:
                for partition in data.partition_data:
                    responses.append(self._append(data, topic, partition, responses))
            else:
                for partition in pace(data.partition_data):
                    # The topic may be gone since the last partition.
                    topic = find_topic(self._services, self._context, data)
                    responses.append(self._append(data, topic, partition, responses))
            if responses:
                self.response.responses.append(
                    TopicProduceResponse(
                        name=data.name, topic_id=data.topic_id, partition_responses=responses
                    )
                )
        return not self._laborious

    async def finish(self) -> None:
        """Let a thread check the remaining batches, and append them."""
        laborious = self._laborious
        batches = [(one.log, one.records) for one in laborious]
        checks = self._services.batch_checks
        found = await checks.check(batches, self._now_ms, self._allowance, self._client())
        if self._context.charge is not None:
            self._context.charge.count_ns(found.cpu_ns)
        for one, verdict in zip(laborious, found.verdicts, strict=True):
            topic = find_topic(self._services, self._context, one.data)
            one.responses[one.at] = self._append_checked(one, topic, verdict)

    def _client(self) -> Hashable:
        """Return the key by which clients take turns: a user, or an anonymous connection."""
        principal = self._context.principal
        return id(self._context.client) if principal == ANONYMOUS else principal

    def _append(
        self,
        data: TopicProduceData,
        topic: Topic | None,
        partition: PartitionProduceData,
        responses: list[PartitionProduceResponse],
    ) -> PartitionProduceResponse:
        """Append a batch, unless it has to wait for a thread; return its response or a blank."""
        log = self._find(topic, partition)
        if isinstance(log, PartitionProduceResponse):
            return self._counted(topic, log)
        records = partition.records
        assert records is not None
        try:
            checked = log.check(records, now_ms=self._now_ms, allowance=self._allowance)
            return self._carry_out(log, partition.index, checked)
        except StorageError as error:
            return self._counted(topic, explain(self._services, log, partition.index, error))
        except TooLaborious:
            # The batches that follow go to the thread, too, unless their check is free.
            self._allowance.exhaust()
            self._laborious.append(
                _Laborious(data, partition, log, records, responses, len(responses))
            )
            return refusal(partition.index, ErrorCode.NONE, None)

    def _append_checked(
        self, one: _Laborious, topic: Topic | None, verdict: Verdict
    ) -> PartitionProduceResponse:
        """Append a batch that comes back from a thread. Everything may have changed since."""
        index = one.partition.index
        log = self._find(topic, one.partition)
        if isinstance(log, PartitionProduceResponse):
            return self._counted(topic, log)
        try:
            if isinstance(verdict, StorageError):
                raise verdict
            problem = forbid_ended(
                self._services, self._context, self._request.transactional_id, log, verdict
            )
            if problem is not None:
                return self._counted(topic, refusal(index, *problem))
            return self._carry_out(log, index, verdict)
        except StorageError as error:
            return self._counted(topic, explain(self._services, log, index, error))

    def _find(
        self, topic: Topic | None, partition: PartitionProduceData
    ) -> Log | PartitionProduceResponse:
        """Return the log for a batch, or the response that refuses it."""
        index = partition.index
        if topic is None:
            by_id = self._context.api_version >= TOPIC_IDS_SINCE
            missing = (
                ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            return refusal(index, missing, None)
        if not 0 <= index < len(topic.partitions):
            return refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        refused = self._problem(topic, partition)
        if refused is not None:
            return refused
        problem = self._refused.get((topic.name, index)) if self._refused else None
        if problem is not None:
            return refusal(index, *problem)
        log = topic.partitions[index]
        if isinstance(log, Log):
            return log
        refused = refusal(index, code_of(log.cause), message_of(log.cause))
        if isinstance(log, RemotePartition) and log.leader.node_id != NO_LEADER:
            leader = log.leader
            refused.current_leader = LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.epoch
            )
            self._name(leader.node_id)
        return refused

    def _name(self, node_id: int) -> None:
        """Add the endpoint of a leader that the response names (KIP-951)."""
        named = self.response.node_endpoints
        found = self._services.brokers.address(node_id, self._context.listener)
        if found is not None and all(one.node_id != node_id for one in named):
            endpoint = NodeEndpoint(
                node_id=node_id, host=found.host, port=found.port, rack=found.rack
            )
            self.response.node_endpoints = [*named, endpoint]

    def _problem(
        self, topic: Topic, partition: PartitionProduceData
    ) -> PartitionProduceResponse | None:
        """Refuse batches that no log has to look at, in Kafka's order."""
        index, records = partition.index, partition.records
        version = self._context.api_version
        if not records:
            message = f"Produce requests with version {version} must have at least one record"
            return refusal(index, ErrorCode.INVALID_RECORD, f"{message} batch per partition")
        at = LOW_ATTRIBUTES_POSITION
        attributes = records[at] if len(records) > at else 0
        if version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
            message = f"Produce requests with version {version} are not allowed to use ZStandard"
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return refusal(index, code, f"{message} compression")
        if self._request.acks not in _ACKS:
            try:
                read_one(records, f"{topic.name}-{index}")
            except NotOneBatch as error:
                return refusal(index, code_of(error), message_of(error))
            except StorageError:
                pass  # an error that Kafka's log would find, after this
            return refusal(index, ErrorCode.INVALID_REQUIRED_ACKS, None)
        if topic.is_internal and self._context.client_id != _ADMIN_CLIENT_ID:
            message = f"Cannot append to internal topic {topic.name}"
            return refusal(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        return None

    def _carry_out(self, log: Log, index: int, checked: CheckedBatch) -> PartitionProduceResponse:
        appended = log.append_checked(checked, now_ms=self._now_ms)
        response = accepted(
            index, appended.base_offset, appended.log_append_time_ms, log.log_start_offset
        )
        self.touched.append((log, response))
        return response

    def _counted(
        self, topic: Topic | None, refused: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        name = topic.name if topic is not None else None
        count_refusal(self._services.metrics, name, refused.error_code)
        return refused


def must_be_durable(log: Log, acks: int, config: BrokerConfig) -> bool:
    """Return whether an answer waits until a log is durable; a shared one is, once committed."""
    return log.must_flush or (acks == -1 and (config.log_flush_acks_all or log.is_shared))
