"""Every client creates, produces with every codec, and consumes in a group across a restart.

What each must see: every record once, in order within its partition, first what it had not
committed before the broker was restarted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from tests.compat.clients import CLIENTS, CODECS, Client, Entry, Seen
from tests.conftest import StartBroker

PARTITIONS = 3
KEYS = 17
SHORT, FULL = 40, 5_000

Broker = OdradekProcess | KafkaProcess

PARAMETERS = [
    pytest.param(client, id=client.name, marks=[pytest.mark.slow]) for client in CLIENTS
]


def _entries(codec: str, count: int) -> list[Entry]:
    return [(f"k{n % KEYS}", f"{codec}-{n}") for n in range(count)]


def check_round(broker: Broker, client: Client, count: int) -> None:
    """Have a client produce `count` records with each codec, and consume them in two sittings."""
    topic, group = f"{client.name}-topic", f"{client.name}-group"
    client.create_topic(broker.bootstrap, topic, PARTITIONS)
    produced: list[Entry] = []
    for codec in CODECS:
        entries = _entries(codec, count)
        client.produce(broker.bootstrap, topic, codec, entries)
        produced += entries
    first_half = len(produced) // 2
    seen = client.consume(broker.bootstrap, topic, group, first_half)
    broker.stop()
    broker.start()
    seen += client.consume(broker.bootstrap, topic, group, len(produced) - first_half)
    _check(produced, seen)
    fresh = client.consume(broker.bootstrap, topic, f"{group}-2", len(produced))
    _check(produced, fresh)


def _round(start_broker: StartBroker, client: Client, count: int) -> None:
    absent = client.why_absent()
    if absent:
        pytest.skip(absent)
    broker = start_broker({"num.partitions": str(PARTITIONS)})
    check_round(broker, client, count)
    assert "ERROR" not in broker.log_text()


def _check(produced: Sequence[Entry], seen: Sequence[Seen]) -> None:
    """Every record once, each partition's offsets without a gap, each key's values in order."""
    assert sorted((s.key, s.value) for s in seen) == sorted(produced)
    offsets: dict[int, list[int]] = defaultdict(list)
    values: dict[str, list[str]] = defaultdict(list)
    for one in seen:
        offsets[one.partition].append(one.offset)
        values[one.key].append(one.value)
    for found in offsets.values():
        assert found == list(range(len(found)))
    for key, in_order in values.items():
        assert in_order == [value for k, value in produced if k == key]


@pytest.mark.parametrize("client", PARAMETERS)
def test_a_client_sees_every_record_once_and_in_order(
    start_broker: StartBroker, client: Client
) -> None:
    _round(start_broker, client, SHORT)


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", PARAMETERS)
def test_a_client_sees_thousands_of_records_once_and_in_order(
    start_broker: StartBroker, client: Client
) -> None:
    _round(start_broker, client, FULL)
