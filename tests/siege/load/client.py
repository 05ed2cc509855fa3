"""The parts of a client that all loads of a siege share."""

from __future__ import annotations

import faulthandler
import os
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from tests.histories.history import Place
from tests.histories.recording import Recorder

# Longer than any trouble: what is sent is acknowledged in the end.
PATIENCE_MS = 600_000
HANGING_S = 60.0
HUNG = "Timeout ("  # as the stack begins
SETTINGS: Mapping[str, str | int | bool] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "enable.metrics.push": False,
}


@dataclass
class Client:
    """A client of a siege: its name, its source of chance, its part of the history."""

    name: str
    bootstrap: str
    places: list[Place]
    recorder: Recorder
    source: random.Random
    over: threading.Event
    # The brokers that may lead a topic, where not all may.
    homes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def is_over(self, wait_s: float = 0.0) -> bool:
        """Return whether the load is over, perhaps after a while; show that the client lives.

        librdkafka 2.16 may wait for ever: after three answers that there is no coordinator at
        the moment, calls with a time-out wait beyond it. A client that does not come back here
        ends with its stack on standard error, and another one takes its place.
        """
        faulthandler.dump_traceback_later(HANGING_S, exit=True)
        return self.over.wait(wait_s)

    def settings(self, **more: str | int | bool) -> dict[str, str | int | bool]:
        """Return the settings of a librdkafka client; underscores stand for dots."""
        named = {key.replace("_", "."): value for key, value in more.items()}
        debug = os.environ.get("SIEGE_DEBUG")  # as librdkafka's option: eos,cgrp,protocol
        own = {"debug": debug, "log_level": 7} if debug else {}
        known = {"bootstrap.servers": self.bootstrap, "client.id": self.name}
        return {**SETTINGS, **known, **named, **own}

    def begin(self, kind: str, **members: object) -> int:
        """Note that an operation begins; return its id."""
        return self.recorder.begin(kind, self.name, **members)

    def end(self, number: int, outcome: str = "done", **members: object) -> None:
        """Note that an operation has ended."""
        self.recorder.end(number, outcome, **members)

    def refused(self, action: str, error: KafkaError) -> None:
        """Note an error that no trouble explains: the client was right, and was refused."""
        self.begin("problem", text=f"refused: {action}: {error.name()}: {error.str()}")
