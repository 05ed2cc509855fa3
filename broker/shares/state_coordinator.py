"""The coordinator of share groups' state: asks a share-partition's machine for decisions.

Each partition of __share_group_state has a machine (state_shard.py), and coordination/runtime.py
carries out its decisions. The leader of a topic's partition reads the state of its
share-partitions here and writes the changes. On one node these are calls; other brokers would
use the APIs 83 to 87.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from odradek.broker.coordination.effects import Caller, Effect
from odradek.broker.coordination.machine import Codec
from odradek.broker.coordination.runtime import Answer, Runtime
from odradek.broker.coordination.seams import InternalTopic, Time, Topics
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareState, decode_record, encode_record
from odradek.broker.shares.state_shard import StateAnswer, StateConfig, StateShard
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

Decide = Callable[[StateShard, Caller], Sequence[Effect]]


class ShareStateCoordinator:
    """Owns the machines, through the runtime that runs them.

    Each operation returns its answer, or an awaitable of it if the answer must wait for the log.
    """

    def __init__(
        self,
        log: InternalTopic,
        topics: Topics,
        config: StateConfig,
        *,
        time: Time,
    ) -> None:
        # The keys spread evenly over the machines, so each machine gets its part of the limit.
        states_max = max(config.states_max // max(log.partition_count, 1), 1)
        self.config = replace(config, states_max=states_max)
        # Until it is set, requests are refused with COORDINATOR_LOAD_IN_PROGRESS.
        self.is_loaded = asyncio.Event()
        self._topics = topics
        self._clock = time.clock
        self._runtime = Runtime(
            "share group states",
            log,
            Codec(encode_record, decode_record),
            lambda partition: StateShard(self.config, self._partition_count),
            time=time,
        )

    def follow(self) -> None:
        """Load the partitions that this broker leads now, and leave those that it has lost."""
        self._runtime.follow()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return self._runtime.problems()

    async def load(self) -> None:
        """Replay every partition, and begin to serve each as soon as it is replayed."""
        await self._runtime.load()
        self.is_loaded.set()
        self._runtime.do_in_turn(
            "snapshot cold share partitions",
            lambda: self.config.cold_snapshot_interval_ms,
            StateShard.snapshot_cold,
        )

    def known(self) -> list[tuple[SharePartitionKey, ShareState]]:
        """Return the present states of all share-partitions."""
        return [known for machine in self._runtime.machines for known in machine.states.items()]

    def close(self) -> None:
        """End serving, and stop the timer."""
        self._runtime.close()

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Answer[StateAnswer]:
        """Begin the state of a share-partition; -1 leaves the start to its first reader."""
        now_ms = self._clock.now_ms()
        return self._run(
            key,
            lambda shard, caller: shard.initialize(
                key, state_epoch, start_offset, caller.token, now_ms
            ),
        )

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Answer[StateAnswer]:
        """Read the state of a share-partition, from which its leader continues."""
        now_ms = self._clock.now_ms()
        return self._run(
            key, lambda shard, caller: shard.read(key, leader_epoch, caller.token, now_ms)
        )

    def write(
        self, key: SharePartitionKey, change: ShareState, flaw: str | None = None
    ) -> Answer[StateAnswer]:
        """Store a change of a share-partition, unless the change has a flaw."""
        now_ms = self._clock.now_ms()
        return self._run(
            key, lambda shard, caller: shard.write(key, change, caller.token, now_ms, flaw)
        )

    def summarize(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """Return a summary of a share-partition's state."""
        return self._run(key, lambda shard, caller: shard.summarize(key, caller.token))

    def delete(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """Delete the state of a share-partition."""
        return self._run(key, lambda shard, caller: shard.delete(key, caller.token))

    def topic_deleted(self, topic_id: bytes) -> None:
        """Delete the states of a topic's partitions."""
        self._runtime.for_all(lambda shard: shard.topics_deleted((topic_id,)))

    def _run(self, key: SharePartitionKey, decide: Decide) -> Answer[StateAnswer]:
        name = key.name
        shard = self._runtime.machine_of(name)
        if isinstance(shard, ErrorCode):
            return StateAnswer(shard, shard.sentence)
        caller = self._runtime.caller()
        return self._runtime.run(name, decide(shard, caller), caller, StateAnswer)

    def _partition_count(self, topic_id: bytes) -> int:
        name = self._topics.name_of(topic_id)
        return 0 if name is None else self._topics.partition_count(name)


async def all_of(answers: Sequence[Answer[StateAnswer]]) -> list[StateAnswer]:
    """Wait for answers that were begun together, so that one flush serves them all."""
    return [one if isinstance(one, StateAnswer) else await one for one in paced(answers)]
