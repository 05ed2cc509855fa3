"""Transactions beside Apache Kafka: drawn scripts of requests, and what both write of them.

`make test` plays a few scripts, `make interop` many: FUZZ_SEED says where their seeds begin.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from odradek.broker.orders.java import hash_spread
from odradek.broker.topics.names import CONSUMER_OFFSETS
from odradek.broker.transactions.state import TransactionState
from odradek.storage.segment import LOG
from tests.broker.beside_kafka import BesideKafka
from tests.differential.transactions import Side, differences, draw
from tests.fuzz.seeds import FIRST_SEED, WORLDS
from tests.storage.dump import dump

pytestmark = pytest.mark.kafka

SHORT_SCRIPTS, STEPS = 4, 60

Pair = tuple[OdradekProcess, KafkaProcess]


@pytest.fixture
def brokers(beside_kafka: BesideKafka) -> Pair:
    return beside_kafka.ours, beside_kafka.theirs


def world_of(seed: int) -> int:
    """Return a number that no other seed has, for the names of a script.

    With an odd seed the topic and the topic of offsets share a place in a small table of Java's:
    their order depends on the order in which they come.
    """
    place = hash_spread(CONSUMER_OFFSETS) % 16
    worlds = range(1_000 * seed, 1_000 * (seed + 1))
    return next(one for one in worlds if (hash_spread(f"t{one}") % 16 == place) == seed % 2)


def play(brokers: Pair, seed: int) -> list[str]:
    """Play a script of a world of its own; return what differs."""
    world = world_of(seed)
    sides = [Side(one.port, f"t{world}") for one in brokers]
    try:
        for side in sides:
            side.begin()
        return differences(sides, draw(world, STEPS, seed))
    finally:
        for side in sides:
            side.peer.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SHORT_SCRIPTS))
def test_both_answer_alike_and_write_the_same(brokers: Pair, seed: int) -> None:
    assert not (found := play(brokers, seed)), "\n".join(found)


@pytest.mark.interop
@pytest.mark.timeout(7200)
def test_many_scripts(brokers: Pair) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + 10 * WORLDS):
        assert not (found := play(brokers, seed)), "\n".join((f"seed {seed}", *found))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafkas_own_decoder_reads_what_we_have_written(brokers: Pair) -> None:
    assert not play(brokers, 1_000)
    ours, _ = brokers
    files: list[Path] = sorted((ours.data / "__transaction_state-0").glob(f"*{LOG}"))
    found = dump(files, "--transaction-log-decoder", with_gaps=("__transaction_state",))
    assert not found.wrong
    assert found.record_count
    states = TransactionState
    for state in (states.ONGOING, states.PREPARE_COMMIT, states.COMPLETE_ABORT):
        assert f'"transactionStatus":{state.value}' in found.text
