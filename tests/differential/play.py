"""Plays the same requests to Odradek and to Apache Kafka, and keeps their worlds equal."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from bench.processes import KafkaProcess
from odradek.broker.api_table import APIS, Api
from odradek.protocol.frames import encode_request
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.alter_configs import AlterableConfig as AlterableSetting
from odradek.protocol.messages.alter_configs import AlterConfigsRequest
from odradek.protocol.messages.alter_configs import AlterConfigsResource as Settings
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from odradek.protocol.schema import info_of
from tests.differential.answers import Difference, Pairs
from tests.differential.drawing import Drawing
from tests.differential.wire import CLIENT_ID, Outcome, Peer, read_answer
from tests.differential.world import BROKER, NODE_ID, PARTITIONS, SETTINGS, Member, World
from tests.differential.wrong_frames import Wrong
from tests.support.forking import ForkedOdradek
from tests.support.requests import altering, committing, creating, listing_offsets
from tests.support.waiting import wait_until

# Kafka's broker hears of all else from its controller, a little after the client does.
_AT_ONCE = frozenset(
    (
        *("Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch"),
        *("OffsetCommit", "OffsetFetch", "FindCoordinator", "InitProducerId"),
        *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
        *("DescribeGroups", "ListGroups", "DeleteGroups"),
        *("ApiVersions", "Metadata", "DescribeCluster", "DescribeConfigs"),
        *("DescribeTopicPartitions", "DescribeLogDirs", "ListPartitionReassignments"),
        *("DescribeQuorum", "GetTelemetrySubscriptions", "PushTelemetry", "ListConfigResources"),
    )
)
BY_NAME: Mapping[str, Api] = {api.name: api for api in APIS}
_MARK = "max.connections"
_MARK_FIRST = 1_000_000
# Errors of a coordinator that is not there yet.
_COORDINATOR_ERRORS = (14, 15, 16)


class Play:
    """Two brokers of one history."""

    def __init__(self, ours: Peer, theirs: Peer) -> None:
        self.ours, self.theirs = ours, theirs
        self.pairs = Pairs(ours.port, theirs.port)
        self.asked = 0
        self._marks = 0
        self._log_dir = self._pair_log_dirs()

    def world(self, seed: int) -> World:
        """Begin the world of a seed: its topics are created, and can be used."""
        world = World(seed, log_dir=self._log_dir)
        creation = creating(*world.creation())
        ours, theirs = self.ours.ask(creation, 7), self.theirs.ask(creation, 7)
        assert not [one for one in (*ours.topics, *theirs.topics) if one.error_code]
        theirs_by_name = {one.name: one.topic_id for one in theirs.topics}
        for one in ours.topics:
            world.topic_ids[one.name] = one.topic_id
            self.pairs.pair(one.topic_id, theirs_by_name[one.name])
        for peer, created in ((self.ours, ours), (self.theirs, theirs)):
            _await_topics(peer, world)
            _await_coordinator(peer, world.groups[0])
            _commit(peer, world.topics[0])
            _await_producer_ids(peer)
            _await_transactions(peer, f"one-{seed}")
            _await_share_state(peer, created.topics[0].topic_id)
        self._reset()
        return world

    def play(self, world: World, number: int) -> Iterator[tuple[str, Difference]]:
        """Ask every API at every version once, in an order of its own; yield differences."""
        order = [(api, version) for api in APIS for version in versions_of(api)]
        Random(f"{world.seed} {number}").shuffle(order)
        for api, version in order:
            random = Random(f"{world.seed} {number} {api.name} {version}")
            request = Drawing(random, world).request(message_classes(api.name)[0], version)
            for one in self.ask(world, api, version, request):
                yield f"{number} {request}", one
        self._reset()

    def ask(self, world: World, api: Api, version: int, request: Any) -> list[Difference]:
        """Send one request to both, and say where their answers differ."""
        frame = encode_request(request, version, 1, CLIENT_ID)
        other = encode_request(self.pairs.for_kafka(request), version, 1, CLIENT_ID)
        ours, theirs = self._send(frame, other)
        found = self.pairs.differences(api.name, version, ours, theirs)
        if ours.answer is not None and not found:
            _learn(world, request, read_answer(api.name, version, ours.answer))
        if api.name not in _AT_ONCE:
            self._settle()
        return found

    def reconnect(self) -> None:
        """Close both connections; the next requests open others."""
        self.ours.close()
        self.theirs.close()

    def wrong(self, frames: Iterator[Wrong]) -> Iterator[tuple[str, Difference]]:
        """Send frames that are no requests; yield differences."""
        for name, version, ours, theirs in frames:
            told = 0 if name == "ApiVersions" and version not in range(5) else version  # KIP-511
            for one in self.pairs.differences(name, told, *self._send(ours, theirs)):
                yield ours[:200].hex(), one
            if name in BY_NAME and name not in _AT_ONCE:
                self._settle()

    def _send(self, ours: bytes, theirs: bytes) -> tuple[Outcome, Outcome]:
        self.asked += 1
        self.ours.send(ours)
        self.theirs.send(theirs)
        outcomes = self.ours.receive(), self.theirs.receive()
        if outcomes[0].connection != outcomes[1].connection:
            self.reconnect()  # both forget what a closed connection has brought about
        return outcomes

    def _pair_log_dirs(self) -> str:
        ours, theirs = (
            peer.ask(DescribeLogDirsRequest(topics=None), 4).results[0].log_dir
            for peer in (self.ours, self.theirs)
        )
        self.pairs.pair(ours, theirs)
        return str(ours)

    def _settle(self) -> None:
        """Wait until Kafka's broker has heard of all that its controller has done.

        A setting is changed last, and the broker takes changes in in their order.
        """
        self._marks += 1
        value = str(_MARK_FIRST + self._marks)
        marking = altering(str(NODE_ID), {_MARK: value}, BROKER)
        for peer in (self.ours, self.theirs):
            answer = peer.ask(marking, 1)
            assert not answer.responses[0].error_code, answer
        asked = DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(NODE_ID), configuration_keys=[_MARK]
        )
        reading = DescribeConfigsRequest(
            resources=[asked], include_synonyms=False, include_documentation=False
        )
        wait_until(
            lambda: self.theirs.ask(reading, 4).results[0].configs[0].value == value,
            "Kafka's broker has heard of all changes",
        )

    def _reset(self) -> None:
        """Take back the settings of the brokers, but for one that Kafka sets for itself."""
        kept = AlterableSetting(name="min.insync.replicas", value="1")
        taken_back = AlterConfigsRequest(
            resources=[
                Settings(resource_type=BROKER, resource_name="", configs=[kept]),
                Settings(resource_type=BROKER, resource_name=str(NODE_ID), configs=[]),
            ],
            validate_only=False,
        )
        for peer in (self.ours, self.theirs):
            answer = peer.ask(taken_back, 2)
            assert not [one for one in answer.responses if one.error_code], answer
        self._settle()


@contextlib.contextmanager
def playing(folder: Path) -> Iterator[Play]:
    """Run both brokers."""
    ours = ForkedOdradek(folder / "odradek", SETTINGS)
    theirs = KafkaProcess(folder / "kafka", SETTINGS)
    try:
        ours.start()
        theirs.start()
        play = Play(Peer(ours.port), Peer(theirs.port))
        try:
            yield play
        finally:
            play.ours.close()
            play.theirs.close()
    finally:
        ours.stop()
        theirs.stop()
    text = ours.log_text()
    assert "Traceback" not in text, text[text.index("Traceback") - 300 :][:5_000]


def versions_of(api: Api) -> range:
    """Return the versions of an API that can be written."""
    declared = info_of(message_classes(api.name)[0]).versions
    return range(max(api.first, declared.first), api.last + 1)


def _learn(world: World, request: Any, answer: Any) -> None:
    """Take up what an answer tells, so that later requests can speak of it."""
    name = type(answer).__name__
    if name == "JoinGroupResponse" and answer.member_id:
        world.members.append(Member(request.group_id, answer.member_id, answer.generation_id))
    elif name == "CreateTopicsResponse":
        for one in answer.topics:
            if one.topic_id.strip(b"\0"):
                world.topic_ids[one.name] = one.topic_id
    elif name == "FetchResponse" and answer.session_id:
        world.session_ids.append(answer.session_id)


def _await_topics(peer: Peer, world: World) -> None:
    wanted = listing_offsets({name: range(PARTITIONS) for name in world.topics})
    wait_until(
        lambda: not any(
            part.error_code for one in peer.ask(wanted, 7).topics for part in one.partitions
        ),
        "the topics are there",
    )


def _await_coordinator(peer: Peer, group: str) -> None:
    """Ask for a group until it is coordinated."""

    def is_coordinated() -> bool:
        peer.ask(FindCoordinatorRequest(key=group), 1)
        answer = peer.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="x"), 1)
        return answer.error_code not in _COORDINATOR_ERRORS

    wait_until(is_coordinated, f"the group {group} has a coordinator")


def _commit(peer: Peer, topic: str) -> None:
    """Commit an offset, which has the topic of offsets made here.

    Kafka makes it as soon as somebody looks for a coordinator.
    """
    answer = peer.ask(committing("one", {topic: {0: 0}}), 7)
    assert not answer.topics[0].partitions[0].error_code, answer


def _await_transactions(peer: Peer, transactional_id: str) -> None:
    """Begin with a transactional id, which has the topic of transactions made."""
    finding = FindCoordinatorRequest(key=transactional_id, key_type=1)
    asking = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    wait_until(
        lambda: not (peer.ask(finding, 1).error_code or peer.ask(asking, 4).error_code),
        "transactions have a coordinator",
    )


def _await_share_state(peer: Peer, topic_id: bytes) -> None:
    """Begin the state of a share-partition, which has the topic of states made."""
    key = f"one:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:0"
    finding = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    part = PartitionData(partition=0, state_epoch=0, start_offset=0)
    state = InitializeStateData(topic_id=topic_id, partitions=[part])
    beginning = InitializeShareGroupStateRequest(group_id="one", topics=[state])

    def is_begun() -> bool:
        peer.ask(finding, 6)
        return not peer.ask(beginning, 0).results[0].partitions[0].error_code

    wait_until(is_begun, "share groups have a coordinator")


def _await_producer_ids(peer: Peer) -> None:
    """Wait until the first block of ids has come."""
    asking = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    wait_until(lambda: not peer.ask(asking, 4).error_code, "there are producer ids")
