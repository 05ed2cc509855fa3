"""Client libraries, each with one verb: write a record as somebody, and say how that went.

The outcome is OK, or a word for how the client was refused and what its library had to say.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.programs import BUILDS
from tests.logins.logins import Login
from tests.support.java import program

OK = "ok"
SASL, TLS = "sasl", "tls"
TIMEOUT_S = 60.0
_REFUSED_MS = 5_000
_PROGRAM = Path(__file__).with_name("SecureClient.java")
# How a refusal of the broker's reaches librdkafka once the handshake has seemed to be over.
_ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went."""

    kind: str
    said: str = ""


class Librdkafka:
    """confluent-kafka."""

    name = "librdkafka"
    knows_delegation_tokens = False

    def attempt(self, bootstrap: str, topic: str, login: Login) -> Outcome:
        """Write a record."""
        from confluent_kafka import KafkaError, Producer

        met: list[Any] = []
        kinds = {KafkaError._AUTHENTICATION: SASL, KafkaError._SSL: TLS}
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "error_cb": met.append,
                "log_level": 0,
                "reconnect.backoff.ms": 500,
                **login.librdkafka(),
            }
        )
        told: list[Any] = []
        producer.produce(topic, "value", "key", on_delivery=lambda error, _: told.append(error))
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and not told:
            producer.poll(0.1)
            for one in list(met):
                kind = TLS if _ALERT in one.str() else kinds.get(one.code())
                if kind is not None:
                    producer.purge()
                    producer.flush(1)
                    return Outcome(kind, one.str())
        if told == [None]:
            return Outcome(OK)
        return Outcome("other", "; ".join(one.str() for one in met))


class KafkaPython:
    """kafka-python, which goes on trying after a refusal, and then says that it has waited."""

    name = "kafka-python"
    knows_delegation_tokens = False

    def __init__(self, *, is_refused: bool) -> None:
        self._patience_ms = _REFUSED_MS if is_refused else int(TIMEOUT_S * 1000)

    def attempt(self, bootstrap: str, topic: str, login: Login) -> Outcome:
        """Write a record."""
        from kafka import KafkaProducer

        producer = None
        try:
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                bootstrap_timeout_ms=self._patience_ms,
                max_block_ms=self._patience_ms,
                **login.kafka_python(),
            )
            producer.send(topic, b"value", b"key").get(TIMEOUT_S)
            return Outcome(OK)
        except Exception as error:  # whatever the library makes of it
            return Outcome(type(error).__name__, str(error))
        finally:
            if producer is not None:
                producer.close(1)


class FranzGo:
    """franz-go, a program that `make interop` builds."""

    name = "franz-go"
    knows_delegation_tokens = True

    def attempt(self, bootstrap: str, topic: str, login: Login) -> Outcome:
        """Write a record."""
        ran = subprocess.run(
            [str(BUILDS / "secure"), bootstrap, topic, login.json()],
            capture_output=True,
            text=True,
            timeout=3 * TIMEOUT_S,
            check=True,
        )
        kind, _, said = ran.stdout.strip().partition(" ")
        return Outcome(kind, said)


class Java:
    """Kafka's own client, in one process for all attempts."""

    name = "java"
    knows_delegation_tokens = True

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None

    def attempt(self, bootstrap: str, topic: str, login: Login) -> Outcome:
        """Write a record."""
        told = {"bootstrap.servers": bootstrap, **login.java(Path(self._folder.name))}
        process = self._running(told)
        assert process.stdin is not None and process.stdout is not None
        words = [topic, *(word for pair in told.items() for word in pair)]
        process.stdin.write("\t".join(words) + "\n")
        process.stdin.flush()
        kind, _, said = process.stdout.readline().strip().partition(" ")
        return Outcome(kind, said)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def _running(self, told: dict[str, str]) -> subprocess.Popen[str]:
        if self._process is None:
            command = program(_PROGRAM)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process


Client = Librdkafka | KafkaPython | FranzGo | Java
