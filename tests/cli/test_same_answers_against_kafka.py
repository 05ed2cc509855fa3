"""Commands of the client of our own get the same answers from Odradek and from Apache Kafka."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer

from bench.processes import KafkaProcess, OdradekProcess
from tests.cli.commands import Commands
from tests.cli.conftest import AnyBroker
from tests.conftest import starting
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

TOPIC, GROUP, PAYER, USER = "orders", "jobs", "payer", "ann"
SETTINGS = {
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "node.id": "1",
}
# Times, sizes, and names that a broker chooses.
_NATURAL = {
    "start_time_ms", "last_timestamp_ms", "total_bytes", "usable_bytes", "member", "epoch",
    "log_dir", "host",
}  # fmt: skip
READING = ("list", "describe", "producers")
_SETTLE_S = 5.0
# Supported at another level on purpose (docs/compatibility.md).
_OTHER_FEATURE = "'kraft.version'"
_DIRECTORY = re.compile(r"/\S*/(\w+)\b")


@dataclass
class Side:
    """A broker, and the commands that ask it."""

    broker: AnyBroker
    homes: list[Path]
    producer: Producer | None = None  # of the open transaction

    @property
    def commands(self) -> Commands:
        """Run commands against the broker."""
        return Commands(self.broker.bootstrap)

    def answer(self, *arguments: str) -> Any:
        """Return the JSON of a command, or its error, without their natural differences."""
        given = [one.format(second=self.homes[1]) for one in arguments]
        result = self.commands.run(*given, "--json")
        if result.exit_code:
            return result.exit_code, _DIRECTORY.sub(r"\1", result.stderr)
        return _comparable(json.loads(result.stdout))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    """Run both brokers with the same topic, transaction, share group and directories."""
    with ExitStack() as stack:
        made = []
        for kind in (OdradekProcess, KafkaProcess):
            folder = tmp_path_factory.mktemp(kind.__name__)
            homes = [folder / "first", folder / "second"]
            starts = starting(kind, folder)
            settings = {**SETTINGS, "log.dirs": ",".join(map(str, homes))}
            made.append(Side(next(starts)(settings), homes))
            stack.callback(lambda starts=starts: next(starts, None))
        for side in made:
            _fill(side)
        yield made


def _fill(side: Side) -> None:
    """Write records, one of them in a transaction that stays open, and read some."""
    commands, servers = side.commands, {"bootstrap.servers": side.broker.bootstrap, "log_level": 0}
    commands.shown("topics", "create", TOPIC, "--partitions", "2")
    commands.shown("produce", TOPIC, "--partition", "1", text="a\nb\n")
    commands.shown("configs", "alter", "--group", GROUP, "--set",
                   "share.auto.offset.reset=earliest")  # fmt: skip
    consumer = ShareConsumer({**servers, "group.id": GROUP, "client.id": "a-member"})
    consumer.subscribe([TOPIC])
    got: list[object] = []
    wait_until(lambda: got.extend(consumer.poll(0.5)) or len(got) == 2, "all is read")
    consumer.close()
    settings = {**servers, "transactional.id": PAYER, "transaction.timeout.ms": 600_000}
    producer = side.producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"a", partition=0)
    producer.flush()


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items() if key not in _NATURAL}
    if isinstance(value, list):
        return [_comparable(one) for one in value if _OTHER_FEATURE not in str(one)]
    return value


# In order: a command may see the changes of another, once a command that reads has them.
COMMANDS = [
    "quotas list",
    f"quotas set --user {USER} producer_byte_rate=1000 request_percentage=12.5",
    f"quotas set --user {USER} --client-id default consumer_byte_rate=2000 --dry-run",
    f"quotas set --user {USER} --client-id default consumer_byte_rate=2000",
    "quotas set --ip 127.0.0.1 connection_creation_rate=1000",
    "quotas set --ip 127.0.0.1 producer_byte_rate=1000",
    f"quotas set --user {USER} connection_creation_rate=1000",
    "quotas list",
    f"quotas list --user {USER}",
    f"quotas list --user {USER} --client-id default",
    f"quotas delete --user {USER} producer_byte_rate --yes",
    "quotas list",
    f"quotas delete --user {USER} producer_byte_rate --yes",
    "quotas list",
    "transactions list",
    "transactions list --state ongoing --longer-than 0",
    "transactions list --pattern .*ay.*",
    "transactions list --pattern (",
    f"transactions describe {PAYER}",
    "transactions describe nobody",
    f"transactions producers {TOPIC} -p 0",
    f"transactions producers {TOPIC} --broker 1",
    f"transactions find-hanging --topic {TOPIC} --max-timeout-minutes 0",
    f"transactions abort {TOPIC} -p 0 --start-offset 9 --yes",
    f"transactions abort {TOPIC} -p 0 --start-offset 0 --yes",
    f"transactions producers {TOPIC} -p 0",
    "transactions terminate nobody --yes",
    f"transactions terminate {PAYER} --yes",
    "share-groups list",
    f"share-groups describe {GROUP}",
    "share-groups describe nobody",
    f"share-groups reset-offsets {GROUP} --topic {TOPIC} --to end --dry-run",
    f"share-groups reset-offsets {GROUP} --topic {TOPIC} -p 1 --to 1",
    f"share-groups reset-offsets {GROUP} --topic {TOPIC} --to -1",
    f"share-groups describe {GROUP}",
    f"share-groups delete-offsets {GROUP} --topic {TOPIC} --yes",
    f"share-groups delete-offsets {GROUP} --topic {TOPIC} --yes",
    f"share-groups describe {GROUP}",
    "groups list",
    f"groups describe {GROUP}",
    f"share-groups delete {GROUP} --yes",
    "share-groups list",
    f"logdirs move {TOPIC} --broker 1 --to /elsewhere",
    f"logdirs move {TOPIC} --broker 1 --to {{second}}",
    f"logdirs move {TOPIC} -p 7 --broker 1 --to {{second}}",
    f"logdirs describe --topic {TOPIC}",
    "features describe",
    "features upgrade streams.version=9 --yes",
    "features downgrade streams.version=0 --dry-run",
    "features downgrade streams.version=0 --yes",
    "features describe",
    "features upgrade streams.version=1 --yes",
    "features describe",
    "features downgrade metadata.version=1 --yes",
]


def test_answers_are_the_same(sides: list[Side]) -> None:
    differences = {}
    for command in COMMANDS:
        words = command.split()
        ours = sides[0].answer(*words)
        theirs = _theirs(sides[1], words, ours)
        if ours != theirs:
            differences[command] = (ours, theirs)
    assert not differences, "\n".join(
        f"{command}\n  {ours}\n  {theirs}" for command, (ours, theirs) in differences.items()
    )


def _theirs(side: Side, words: list[str], ours: Any) -> Any:
    """Return Kafka's answer: the last of several to a command that reads.

    Its brokers hear of changes a little later.
    """
    if words[1] not in READING:
        return side.answer(*words)
    answers: list[Any] = []

    def is_same() -> bool:
        answers.append(side.answer(*words))
        return bool(answers[-1] == ours)

    with contextlib.suppress(AssertionError):
        wait_until(is_same, patience_s=_SETTLE_S)
    return answers[-1]
