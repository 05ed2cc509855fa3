"""Offsets of a group, committed plainly and in transactions of several producers.

Who commits is a member, or claims to be one, or names none. A transaction is ended before its
producer begins another; Kafka writes markers after it has answered, so the end is waited for.
Producers' ids are each broker's own: requests are made once for either.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from odradek.protocol.frames import encode_request
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.actors import Actor, Found, Stage
from tests.differential.play import BY_NAME, Play
from tests.differential.wire import CLIENT_ID, read_answer
from tests.differential.world import PARTITIONS, World

_TRANSACTION = 1  # a key's type
_LONG_MS = 1_800_000
_TRANSACTION_MS = 600_000
_MEMBERS_SINCE, _COMMIT_LAST = 3, 5  # of TxnOffsetCommit
_ADDS_SINCE = 5  # the commit itself adds the group to the transaction (KIP-890)
_PLAIN_FIRST, _PLAIN_LAST = 2, 9  # of OffsetCommit: those that name topics
_RETENTION_LAST = 4
_ENDED = ("CompleteCommit", "CompleteAbort", "Empty")

_PLAIN_ACTS = ("commit", "commit", "delete", "join")
_TRANSACTIONAL_ACTS = ("transaction", "transaction", "end", "wrong producer")


@dataclass
class Writer:
    """A producer: its id and epoch at either broker."""

    transactional_id: str
    ids: list[tuple[int, int]] = field(default_factory=list)
    is_open: bool = False
    is_new: bool = False  # it ends its transaction as KIP-890 has it


class OffsetsScript:
    """Draws what is done to the offsets of one group, and yields where the brokers differ."""

    def __init__(self, play: Play, world: World, name: str) -> None:
        self.world, self.name = world, f"{name}-{world.seed}"
        self.random = Random(self.name)
        self.stage = Stage(play)
        self.client = self.stage.actor(0)
        self.member: Actor | None = None
        is_served = "EndTxn" in BY_NAME
        self.writers = [Writer(f"{self.name}-{number}") for number in range(3 * is_served)]

    def run(self, steps: int) -> Iterator[Found]:
        """Do so many things, then end all transactions and delete the group."""
        try:
            for writer in self.writers:
                self._begin_writer(writer)
            for _ in range(steps):
                yield from self._step()
            for writer in self.writers:
                yield from self._end(writer)
            yield from self._fetch()
            if self.member is not None:
                yield from self._leave(self.member)
            yield from self._commit_plainly()
            deletion = DeleteGroupsRequest(groups_names=[self.name])
            yield from self.stage.ask(self.client, deletion, 2)
            yield from self._fetch()
        finally:
            self.client.close()

    def _step(self) -> Iterator[Found]:
        if self.writers and self.random.random() < 0.6:
            writer = self.random.choice(self.writers)
            match self.random.choice(_TRANSACTIONAL_ACTS):
                case "transaction":
                    yield from self._commit_in_transaction(writer)
                case "end":
                    yield from self._end(writer)
                case "wrong producer":
                    yield from self._commit_wrongly(writer)
        else:
            match self.random.choice(_PLAIN_ACTS):
                case "commit":
                    yield from self._commit_plainly()
                case "delete":
                    yield from self._delete()
                case "join" if self.member is None:
                    yield from self._join()
                case "join":
                    yield from self._leave(self.member)
        yield from self._fetch()

    # --- plainly ------------------------------------------------------------------------------

    def _commit_plainly(self) -> Iterator[Found]:
        version = self.random.randint(_PLAIN_FIRST, _PLAIN_LAST)
        keeps = version <= _RETENTION_LAST and self.random.random() < 0.3
        member = self._claimed(self.member)
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            retention_time_ms=_LONG_MS if keeps else -1,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=self.random.randint(0, 99),
                            committed_metadata="plain",
                        )
                        for index in self._indexes()
                    ],
                )
                for topic in self._topics()
            ],
        )
        yield from self.stage.ask(self.client, request, version)

    def _fetch(self) -> Iterator[Found]:
        asked = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[*range(PARTITIONS + 1)])
            for topic in self.world.topics[:2]
        ]
        topics = None if self.random.random() < 0.3 else asked
        for require_stable in (False, True):
            request = OffsetFetchRequest(
                topics=None,
                groups=[OffsetFetchRequestGroup(group_id=self.name, topics=topics)],
                require_stable=require_stable,
            )
            yield from self.stage.ask(self.client, request, self.random.choice((8, 9)))

    def _delete(self) -> Iterator[Found]:
        request = OffsetDeleteRequest(
            group_id=self.name,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index)
                        for index in self._indexes()
                    ],
                )
                for topic in self._topics()
            ],
        )
        yield from self.stage.ask(self.client, request, 0)

    def _join(self) -> Iterator[Found]:
        member = self.member = self.stage.actor(1)
        subscription = bytes(10)  # version 0, no topics, no data
        protocol = JoinGroupRequestProtocol(name="range", metadata=subscription)
        request = JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=_LONG_MS,
            rebalance_timeout_ms=_LONG_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        yield from self.stage.ask(member, request, 3, "member_id", "generation_id")
        assignment = SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all")
        if self.random.random() < 0.7:  # else the group awaits the assignment
            syncing = SyncGroupRequest(
                group_id=self.name,
                generation_id=member.generation_id,
                member_id=member.member_id,
                assignments=[assignment],
            )
            yield from self.stage.ask(member, syncing, 3)

    def _leave(self, member: Actor) -> Iterator[Found]:
        leaving = LeaveGroupRequest(
            group_id=self.name,
            member_id=member.member_id,
            members=[MemberIdentity(member_id=member.member_id)],
        )
        yield from self.stage.ask(member, leaving, 5)
        member.close()
        self.member = None

    # --- in transactions ----------------------------------------------------------------------

    def _begin_writer(self, writer: Writer) -> None:
        """Have an id given, once the coordinator is there."""
        finding = FindCoordinatorRequest(key=writer.transactional_id, key_type=_TRANSACTION)
        self.stage.wait_until(self.client, finding, 1, lambda answer: not answer.error_code)
        request = InitProducerIdRequest(
            transactional_id=writer.transactional_id, transaction_timeout_ms=_TRANSACTION_MS
        )

        def is_given(answer: Any) -> bool:
            if not answer.error_code:
                writer.ids.append((answer.producer_id, answer.producer_epoch))
            return not answer.error_code

        self.stage.wait_until(self.client, request, 5, is_given)

    def _commit_in_transaction(self, writer: Writer) -> Iterator[Found]:
        if not writer.is_open:
            writer.is_new = self.random.random() < 0.5
        low, high = (_ADDS_SINCE, _COMMIT_LAST) if writer.is_new else (0, _ADDS_SINCE - 1)
        if not writer.is_open and not writer.is_new:
            yield from self._add(writer)
        writer.is_open = True
        version = self.random.randint(low, high)
        yield from self._ask_each(self._transactional(writer, version), version)

    def _commit_wrongly(self, writer: Writer) -> Iterator[Found]:
        """Commit in a transaction that does not have the group, or as an older self."""
        version = self.random.randint(0, _ADDS_SINCE - 1)
        if writer.is_open and writer.is_new:
            version = _ADDS_SINCE
        epoch_change = -1 if writer.is_open else 0
        yield from self._ask_each(self._transactional(writer, version, epoch_change), version)

    def _add(self, writer: Writer) -> Iterator[Found]:
        kind = message_classes("AddOffsetsToTxn")[0]

        def made(side: int) -> Any:
            producer_id, epoch = writer.ids[side]
            return kind(
                transactional_id=writer.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self.name,
            )

        yield from self._ask_each(made, self.random.randint(0, 4))

    def _end(self, writer: Writer) -> Iterator[Found]:
        if not writer.is_open:
            return
        kind, is_commit = message_classes("EndTxn")[0], self.random.random() < 0.6

        def made(side: int) -> Any:
            producer_id, epoch = writer.ids[side]
            return kind(
                transactional_id=writer.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=is_commit,
            )

        version = 5 if writer.is_new else self.random.randint(0, 4)
        answers = yield from self._ask_each(made, version)
        writer.is_open = False
        if writer.is_new and not answers[0].error_code:
            writer.ids = [(answer.producer_id, answer.producer_epoch) for answer in answers]
        describing = message_classes("DescribeTransactions")[0](
            transactional_ids=[writer.transactional_id]
        )
        self.stage.wait_until(
            self.client,
            describing,
            0,
            lambda answer: answer.transaction_states[0].transaction_state in _ENDED,
        )

    def _transactional(
        self, writer: Writer, version: int, epoch_change: int = 0
    ) -> Callable[[int], TxnOffsetCommitRequest]:
        member = self._claimed(self.member if version >= _MEMBERS_SINCE else None)
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=self.random.randint(100, 199),
                        committed_metadata=self.random.choice((None, "transactional")),
                    )
                    for index in self._indexes()
                ],
            )
            for topic in self._topics()
        ]

        def made(side: int) -> TxnOffsetCommitRequest:
            producer_id, epoch = writer.ids[side]
            return TxnOffsetCommitRequest(
                transactional_id=writer.transactional_id,
                group_id=self.name,
                producer_id=producer_id,
                producer_epoch=epoch + epoch_change,
                generation_id=member.generation_id,
                member_id=member.member_id,
                topics=topics,
            )

        return made

    # --- drawing and asking -------------------------------------------------------------------

    def _claimed(self, member: Actor | None) -> Actor:
        """Return who commits: the member as it is or not, or nobody."""
        known = member or self.client
        match self.random.choice(("known", "known", "nobody", "stranger", "older")):
            case "nobody":
                return replace(known, member_id="", generation_id=-1)
            case "stranger" if member is not None:
                return replace(known, member_id="stranger")
            case "older" if member is not None:
                return replace(known, generation_id=known.generation_id - 1)
        return known

    def _topics(self) -> list[str]:
        return self.random.sample([*self.world.topics[:2], "no-topic"], self.random.randint(1, 2))

    def _indexes(self) -> list[int]:
        return self.random.sample(range(PARTITIONS + 1), self.random.randint(1, 2))

    def _ask_each(
        self, made: Callable[[int], Any], version: int
    ) -> Generator[Found, None, list[Any]]:
        """Ask each broker in its own words; compare, and return both answers."""
        pairs = self.stage.play.pairs
        requests = made(0), pairs.for_kafka(made(1))
        for peer, request in zip(self.client.connections, requests, strict=True):
            peer.send(encode_request(request, version, 1, CLIENT_ID))
        outcomes = [peer.receive() for peer in self.client.connections]
        api = type(requests[0]).__name__.removesuffix("Request")
        for one in pairs.differences(api, version, *outcomes):
            yield f"{requests[0]}", one
        answers = [one.answer for one in outcomes if one.answer is not None]
        assert len(answers) == len(outcomes), f"{api}: {outcomes}"
        return [read_answer(api, version, answer) for answer in answers]
