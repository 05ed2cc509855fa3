"""How much does one core of the machine serve? Each broker has one, and the clients have another.

Odradek's process serves all its clients from one core, Kafka's from all cores. Where a machine
has many, workers take the others (workers.py); here both have the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.clients import create_topic
from bench.connections import TOPIC, produce_request
from bench.pairs import Broker, Figure, Question, Values
from bench.questions.groups import joined_and_left
from bench.questions.many import BUSY, CLIENTS, SECONDS, rate_of

_LARGE_BYTES = 20_000
_LARGE = f"{CLIENTS} connections, 20 kB"


def _ask(broker: Broker, scale: float) -> Values:
    seconds = max(SECONDS * scale, 0.5)
    with _started_on_one_core(broker):
        create_topic(broker, TOPIC, CLIENTS)
        small = [produce_request(at % CLIENTS) for at in range(BUSY)]
        large = [produce_request(at, _LARGE_BYTES) for at in range(CLIENTS)]
        rate_of(broker, seconds, small)  # Kafka's compiler has to share the core
        return {
            "round trips as fast as they go": rate_of(broker, seconds, small),
            _LARGE: rate_of(broker, seconds, large),
            "joined and left": joined_and_left(broker, seconds),
        }


@contextmanager
def _started_on_one_core(broker: Broker) -> Iterator[None]:
    """Start a broker on the first core of this process, which goes to the others meanwhile."""
    cores = os.sched_getaffinity(0)
    first = min(cores)
    try:
        os.sched_setaffinity(0, {first})  # processes begin where their parent is
        broker.start()
        os.sched_setaffinity(0, cores - {first} or cores)
        yield
    finally:
        os.sched_setaffinity(0, cores)


ONE_CORE = Question(
    "one-core",
    f"A core for each broker, another for the clients: {BUSY} connections that send records of "
    f"100 B with acks=1, {CLIENTS} that send 20 kB, {CLIENTS} groups of one member",
    [
        Figure("round trips as fast as they go", "1/s", at_least=1.0),
        Figure(_LARGE, "1/s", at_least=1.0),
        Figure("joined and left", "1/s", at_least=1.0),
    ],
    _ask,
    starts_itself=True,
    note="One process of Odradek takes one core, and Kafka takes all that there are. Where Kafka "
    "answers more in `connections` and `in-memory`, it does so with both cores.",
)
