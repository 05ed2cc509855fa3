"""Connections of commands to any Kafka: the options for its address, and its clients.

confluent_kafka is imported when a client is created, not before: it takes 50 ms.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.arguments import SERVERS_NAMES
from odradek.cli.place import DEFAULT_ADDRESS, ENVIRONMENT, find_place
from odradek.cli.refusals import (
    Act,
    CommandError,
    connection_reason,
    explain,
    no_broker,
    no_partition,
    no_topic,
    refused,
)
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, TopicMetadata

    from odradek.cli.wire.client import Wire

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
# The time to keep trying when every error so far means that no attempt can succeed.
_HOPELESS_S = 1.0
_SLICE_S = 0.25
# The time after which every broker of a cluster has a change, and the pause between questions.
NEWS_S, NEWS_PAUSE_S = 1.0, 0.05
_HOPELESS = (
    "Connection refused",
    "Name or service not known",
    "authentication",
    "SSL handshake",
    "SSL alert",
)
# librdkafka's words when a broker refuses it, the project's words, and the remedy.
_LOGIN = "SASL authentication error"
_REFUSALS = (
    (_LOGIN, "{address} refuses the login", "check sasl.username and sasl.password"),
    (
        "supported mechanisms",
        "{address} does not serve the mechanism of the login",
        "set sasl.mechanism",
    ),
    (
        "certificate verify failed",
        "the certificate of {address} is not signed by a trusted authority",
        "name its authority with ssl.truststore.location or ssl.ca.location",
    ),
    (
        "SSL alert",
        "{address} does not accept your certificate",
        "check ssl.keystore.location or ssl.certificate.location",
    ),
)


@dataclass
class Connection:
    """The brokers' addresses, and properties for clients; creates clients.

    Keeps the last connection errors of its clients, for an error that needs a reason. `registry`
    is the URL of the schema registry, None where there is none.
    """

    properties: Mapping[str, str]
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    reasons: list[str] = field(default_factory=list)
    registry: str | None = None

    @property
    def address(self) -> str:
        """The bootstrap servers."""
        return self.properties["bootstrap.servers"]

    @property
    def reason(self) -> str | None:
        """The last connection error, or None."""
        return self.reasons[-1] if self.reasons else None

    def admin(self) -> Admin:
        """Connect; raises CommandError when no broker answers."""
        from confluent_kafka.admin import AdminClient

        admin = Admin(self, self.make(AdminClient, {}))
        admin.connect()
        return admin

    def wire(self, request_timeout_s: float = REQUEST_TIMEOUT_S) -> Wire:
        """Return a client for the requests that librdkafka does not send; it is not connected.

        Raises CommandError for the same properties as other clients, in the same words.
        """
        from confluent_kafka.admin import AdminClient

        from odradek.cli.wire.client import Wire
        from odradek.cli.wire.logins import mechanism_of

        mechanism_of(self.properties)
        # librdkafka reads the properties, and has no broker to connect to.
        Connection({**self.properties, "bootstrap.servers": ""}).make(AdminClient, {})
        return Wire(self, request_timeout_s)

    def producer(self, properties: Mapping[str, object]) -> Producer:
        """Return a producer; the user's own settings win over the properties."""
        from confluent_kafka import Producer

        return self.make(Producer, properties)

    def consumer(self, properties: Mapping[str, object]) -> Consumer:
        """Return a consumer; the user's own settings win over the properties."""
        from confluent_kafka import Consumer

        return self.make(Consumer, properties)

    def make(self, kind: Callable[..., T], properties: Mapping[str, object]) -> T:
        """Return a client of a kind; its log lines are discarded."""
        from confluent_kafka import KafkaException

        settings = {"client.id": "odradek", **properties, **self.properties}
        settings["error_cb"] = self._note
        try:
            return kind(settings, logger=_silent_logger())
        except KafkaException as error:
            raise CommandError(f"{explain(error.args[0])}: see -X and --client-config") from error

    def _note(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.reasons.append(connection_reason(error.str()))
            del self.reasons[:-20]


class Admin:
    """Sends requests to brokers, and reports their refusals in one line."""

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        self.connection = connection
        self.client = client
        self.topics: dict[str, TopicMetadata] = {}
        self.brokers: list[int] = []
        self.hosts: dict[int, str] = {}

    def connect(self) -> None:
        """Wait for an answer, and keep the topics and brokers in it."""
        from confluent_kafka import KafkaException

        started = time.monotonic()
        while True:
            try:
                # Metadata of all topics: a request for one topic might create it.
                metadata = self.client.list_topics(timeout=_SLICE_S)
                self.topics, self.brokers = metadata.topics, sorted(metadata.brokers)
                self.hosts = {one.id: one.host or "" for one in metadata.brokers.values()}
                return
            except KafkaException:
                self.client.poll(0)
            waited_s, reasons = time.monotonic() - started, self.connection.reasons
            is_hopeless = reasons and all(any(x in r for x in _HOPELESS) for r in reasons)
            patience_s = self.connection.connect_timeout_s
            if waited_s > (min(patience_s, _HOPELESS_S) if is_hopeless else patience_s):
                raise CommandError(unreachable(self.connection.address, self.connection.reason))

    def wait(self, future: Future[T], act: Act) -> T:
        """Return an answer; raises CommandError when the broker refuses or is silent."""
        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            self.client.poll(0)
            raise refused(error.args[0], act, self.connection.reason) from error
        except TimeoutError as error:
            raise CommandError(f"could not {act.what}: there was no answer in time") from error

    def require_topics(self, names: Iterable[str]) -> list[TopicMetadata]:
        """Return the metadata of topics; raises CommandError for the first that does not exist."""
        return [self.require_topic(name) for name in names]

    def require_topic(self, name: str, *, for_records: bool = False) -> TopicMetadata:
        """Return the metadata of a topic; raises CommandError when it does not exist.

        With `for_records` records will be written or read: the error says how to create it.
        """
        if name in self.topics or self._appears(name):
            return self.topics[name]
        hint = f": odradek topics create {name} creates it" if for_records else None
        raise CommandError(no_topic(name, self.topics, hint))

    def require_partitions(self, topic: str, numbers: Sequence[int]) -> Sequence[int]:
        """Return the chosen partitions, or all; raises CommandError for one that is missing."""
        known = sorted(self.require_topic(topic).partitions)
        missing = [number for number in numbers if number not in known]
        if missing:
            raise CommandError(no_partition(topic, missing[0], len(known)))
        return numbers or known

    def _appears(self, name: str) -> bool:
        """Ask again for a topic: a broker knows one that another has created a little later."""
        from confluent_kafka import KafkaException, TopicCollection

        act = Act(f"find topic {name}", f"DESCRIBE on topic {name}")
        try:
            described = self.client.describe_topics(TopicCollection([name]))
            described[name].result(REQUEST_TIMEOUT_S)
        except (KafkaException, ValueError) as error:
            kafka_error = error.args[0]
            if isinstance(error, KafkaException) and "UNKNOWN_TOPIC" not in kafka_error.name():
                raise refused(kafka_error, act, self.connection.reason) from error
        end_s = time.monotonic() + (NEWS_S if len(self.brokers) > 1 else 0.0)
        while name not in self.topics and time.monotonic() < end_s:
            time.sleep(NEWS_PAUSE_S)
            self.connect()
        return name in self.topics

    def require_broker(self, number: int) -> None:
        """Raise CommandError when no broker has this id: a request to it would take 30 s."""
        if number not in self.brokers:
            raise CommandError(no_broker(number, self.brokers))


def unreachable(address: str, reason: str | None) -> str:
    """Return the message where no broker answers; the reason is librdkafka's, None without one."""
    for words, meaning, remedy in _REFUSALS:
        if reason and words in reason:
            why = reason.rpartition("error: ")[2] if words == _LOGIN else reason
            return f"{meaning.format(address=address)} ({why}): {remedy} (--client-config, -X)"
    if not reason:
        return (
            f"{address} does not answer as Kafka does: it may require TLS or a login "
            "(--client-config, -X), or it is not a broker"
        )
    return (
        f"no broker answers at {address} ({reason}): start it, or name another with "
        f"--bootstrap-servers or {ENVIRONMENT}"
    )


def broker_options(command: F) -> F:
    """Add the options for the brokers' addresses; the command gets a Connection."""

    @click.option(
        *SERVERS_NAMES,
        "bootstrap_servers",
        metavar="HOST:PORT,…",
        help="The addresses of the brokers; may stand before the command.  "
        f"[env var: {ENVIRONMENT}; default: the current profile's, else {DEFAULT_ADDRESS}]",
    )
    @click.option(
        "-X",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="A property of librdkafka; wins over --client-config.",
    )
    @click.option(
        "--client-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file of a client, as Kafka's tools read it.",
    )
    @functools.wraps(command)
    def run(
        *args: Any,
        bootstrap_servers: str | None,
        pairs: tuple[str, ...],
        client_config: Path | None,
        **kwargs: Any,
    ) -> None:
        place = find_place(bootstrap_servers, pairs, client_config)
        connection = Connection(place.properties, registry=place.registry)
        command(*args, connection=connection, **kwargs)

    return run  # type: ignore[return-value]


def json_option(command: F) -> F:
    """Add the option that selects JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("odradek.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
