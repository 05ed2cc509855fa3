"""Every option of the broker, set while it runs, is taken or refused as by Apache Kafka.

Each is set bare and under a listener's prefix, of listeners with and without TLS and SASL, and
one that does not exist, with a mechanism and without; for one broker and for all brokers; as a
trial and in earnest. Differences that are meant to be are in tests/config/kafka_differences.py,
and in the lists here, which may only shrink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice, product
from typing import Any, TypeAlias

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from odradek.config.effective import BROKER_OPTION
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.beside_kafka import BesideKafka
from tests.broker.dynamic_configs import ALL, FORMS, NODE, Files, values
from tests.broker.kafka_peer import Peer
from tests.config.kafka_differences import (
    KAFKA_4_4,
    NOT_DYNAMIC,
    OTHER_DEFAULTS,
    OURS,
    REQUIRED,
    is_stricter,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SET, DELETE = 0, 1
BROKER = 4
Answer: TypeAlias = tuple[int, str | None]

# Set where Kafka starts, and nowhere here.
ONLY_KAFKAS = {
    "controller.listener.names",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "offsets.topic.replication.factor",
    "process.roles",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
# Others on each machine, as the ports are.
PLACES = {"listeners", "listener.security.protocol.map", "log.dirs"}

_OF_STORES = "Validation of dynamic config update of SSLFactory failed"

TLS = "listener.name.tls."
LOGIN = "listener.name.login."
# Stores and credentials that cannot be used, and those of listeners that use none. The names in
# braces are of files.
STORES: list[tuple[str, str, Mapping[str, str]]] = [
    *(
        (f"{store} at {path}", NODE, {f"{TLS}ssl.{store}.location": path})
        for store in ("keystore", "truststore")
        for path in ("{nothing}", "{text}", "{directory}", "/proc/self/environ", "/dev/null")
    ),
    *(
        (f"{store} of {kind}", NODE, {f"{TLS}ssl.{store}.type": kind})
        for store in ("keystore", "truststore")
        for kind in ("JKS", "PKCS12", "BCFKS")
    ),
    ("a key that is not encrypted", NODE, {f"{TLS}ssl.key.password": "secret"}),
    ("PEM has no password", NODE, {f"{TLS}ssl.keystore.password": "secret"}),
    ("PEM has no password", NODE, {f"{TLS}ssl.truststore.password": "secret"}),
    ("a location and a key", NODE, {f"{TLS}ssl.keystore.key": "x"}),
    *(
        (
            f"a wrong password of the {store}",
            NODE,
            {
                f"{TLS}ssl.{store}.type": "PKCS12",
                f"{TLS}ssl.{store}.location": f"{{{store}}}",
                f"{TLS}ssl.{store}.password": "wrong",
            },
        )
        for store in ("keystore", "truststore")
    ),
    *(
        (f"{path} at {listener}", NODE, {f"listener.name.{listener}.ssl.keystore.location": path})
        for listener in ("plain", "login", "stranger")
        for path in ("{pem}", "{text}", "{nothing}")
    ),
    ("a store for all brokers", ALL, {f"{TLS}ssl.keystore.location": "{pem}"}),
    ("names that nobody knows", NODE, {"no.such": "x", f"{TLS}no.such": "x"}),
    ("a name that nobody knows", ALL, {f"{TLS}no.such": "x"}),
    ("a value of another type", NODE, {f"{TLS}max.connections": "many"}),
    ("a value of another type", NODE, {f"{TLS}log.cleaner.threads": "many"}),
    ("two with two faults", ALL, {"log.cleaner.threads": "many", f"{TLS}ssl.client.auth": "x"}),
]
# Kafka takes them, and they have an effect here.
STRICTER_VALUES = [
    ("a class of Java's", {f"{LOGIN}scram-sha-256.sasl.jaas.config": "com.sun.Jndi required;"}),
    ("rubbish", {f"{LOGIN}scram-sha-256.sasl.jaas.config": "rubbish"}),
    ("a provider of files", {"config.providers": "file"}),
    ("its class", {"config.providers.file.class": "X"}),
    ("a reference to a file", {f"{LOGIN}scram-sha-256.sasl.jaas.config": "${{file:{text}:a}}"}),
    ("keys of tokens", {f"{LOGIN}sasl.oauthbearer.jwks.endpoint.url": "file://{text}"}),
    ("whom a certificate stands for", {f"{TLS}ssl.principal.mapping.rules": "RULE:.*/admin/"}),
    (
        "keys of tokens of a mechanism",
        {f"{LOGIN}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/"},
    ),
]
# Kafka changes a number of threads to half of it at least, and to its double at most.
LAXER_VALUES = [{"log.cleaner.threads": "50"}, {"num.io.threads": "100"}]


class Place:
    """A broker that runs, a connection to it, and values for its options."""

    def __init__(self, process: OdradekProcess | KafkaProcess, files: Files) -> None:
        self.process, self.files = process, files
        self.values = values(files, process.data)
        self.peer = Peer(process.port)

    def alter(
        self, wanted: Iterable[tuple[str, Mapping[str, str]]], operation: int, trial: bool
    ) -> list[Answer]:
        """Change settings of resources by their name; return their codes and messages."""
        resources = [
            AlterConfigsResource(
                resource_type=BROKER,
                resource_name=resource,
                configs=[
                    AlterableConfig(
                        name=name,
                        config_operation=operation,
                        value=text if operation == SET else None,
                    )
                    for name, text in settings.items()
                ],
            )
            for resource, settings in wanted
        ]
        asked = IncrementalAlterConfigsRequest(resources=resources, validate_only=trial)
        found = {one.resource_name: one for one in self.peer.ask(asked, 1).responses}
        answers = [found[one.resource_name] for one in resources]
        return [(one.error_code, _plain(one.error_message)) for one in answers]

    def sweep(self, names: Iterable[tuple[str, str]], trial: bool) -> dict[tuple[str, str], Any]:
        """Set options, each with a prefix, for this broker and for all; return the answers."""
        answers = {}
        for prefix, option in names:
            settings = {prefix + option: self.values[option]}
            for resource in (NODE, ALL):
                (answer,) = self.alter([(resource, settings)], SET, trial)
                answers[prefix + option, resource] = answer
                if not trial and not answer[0]:
                    self._undo(resource, prefix, option)
        return answers

    def _undo(self, resource: str, prefix: str, option: str) -> None:
        name, default = prefix + option, BROKER_OPTION[option].default
        (answer,) = self.alter([(resource, {name: ""})], DELETE, trial=False)
        if answer[0]:  # min.insync.replicas of all brokers may be changed, not removed (KIP-966)
            (answer,) = self.alter([(resource, {name: str(default)})], SET, trial=False)
        assert not answer[0], (name, answer)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return what is said of each setting."""
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=NODE, configuration_keys=None
        )
        asked = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=False
        )
        (result,) = self.peer.ask(asked, 4).results
        return {one.name: asdict(one) for one in result.configs}


@pytest.fixture(scope="module")
def places(beside_kafka: BesideKafka) -> Iterator[tuple[Place, Place]]:
    """Odradek and Kafka."""
    files = Files(beside_kafka.directory)
    ours, kafkas = Place(beside_kafka.ours, files), Place(beside_kafka.theirs, files)
    with ours.peer, kafkas.peer:
        yield ours, kafkas


def test_each_option_is_taken_as_a_trial_where_kafka_takes_it(
    places: tuple[Place, Place],
) -> None:
    _compare(places, list(product(FORMS.values(), BROKER_OPTION)), trial=True)


def test_each_option_is_taken_where_kafka_takes_it(places: tuple[Place, Place]) -> None:
    # What a trial refuses is refused in earnest by the same lines.
    changeable = [name for name, option in BROKER_OPTION.items() if not option.read_only]
    _compare(places, list(product(["", TLS], changeable)), trial=False)


@pytest.mark.parametrize(("what", "resource", "settings"), STORES)
def test_stores_that_cannot_be_used_are_refused_as_in_kafka(
    places: tuple[Place, Place], what: str, resource: str, settings: Mapping[str, str]
) -> None:
    ours, kafkas = (_ask_once(one, resource, settings) for one in places)
    assert ours[0] == kafkas[0], (what, ours, kafkas)


@pytest.mark.parametrize(("what", "settings"), STRICTER_VALUES)
def test_clients_cannot_have_the_broker_read_files_or_call_addresses(
    places: tuple[Place, Place], what: str, settings: Mapping[str, str]
) -> None:
    ours, kafkas = (_ask_once(one, NODE, settings) for one in places)
    assert ours[0], what
    assert not kafkas[0], f"Kafka refuses {what}, too: {kafkas}"


@pytest.mark.parametrize("settings", LAXER_VALUES)
def test_a_number_of_threads_may_change_by_any_factor(
    places: tuple[Place, Place], settings: Mapping[str, str]
) -> None:
    ours, kafkas = (_ask_once(one, ALL, settings) for one in places)
    assert not ours[0]
    assert kafkas[0], f"Kafka takes {settings}, too"


def test_each_option_that_is_not_set_is_described_as_by_kafka(
    places: tuple[Place, Place],
) -> None:
    ours, kafkas = (one.describe() for one in places)
    assert kafkas["advertised.listeners"]["value"] is None
    assert set(ours) - set(kafkas) <= OURS | KAFKA_4_4
    assert set(kafkas) <= set(ours)
    known = OTHER_DEFAULTS | NOT_DYNAMIC | REQUIRED | ONLY_KAFKAS | PLACES
    differences = {
        name: (ours[name], kafkas_value)
        for name, kafkas_value in kafkas.items()
        if ours[name] != kafkas_value and name not in known
    }
    assert not differences


@pytest.mark.parametrize("text", ["30000", "0", "-1", "x", ""])
def test_rates_of_copies_are_taken_and_described_as_by_kafka(
    places: tuple[Place, Place], text: str
) -> None:
    name = "leader.replication.throttled.rate"

    def seen(place: Place) -> list[Any]:
        said: list[Any] = []
        for resource in (NODE, ALL):
            (answer,) = place.alter([(resource, {name: text})], SET, trial=False)
            if not answer[0]:
                wait_until(lambda: name in place.describe())
            said.append((answer, place.describe().get(name)))
            place.alter([(resource, {name: text})], DELETE, trial=False)
            wait_until(lambda: name not in place.describe())
        return said

    ours, kafkas = (seen(one) for one in places)
    assert ours == kafkas


def _ask_once(place: Place, resource: str, settings: Mapping[str, str]) -> Answer:
    files = place.files
    paths = {
        "directory": files.directory, "nothing": files.directory / "nothing.pem",
        "pem": files.pem, "text": files.text,
        "keystore": files.key_store, "truststore": files.trust_store,
    }  # fmt: skip
    made = {name: text.format_map(paths) for name, text in settings.items()}
    (answer,) = place.alter([(resource, made)], SET, trial=True)
    return answer


def _compare(places: tuple[Place, Place], names: list[tuple[str, str]], *, trial: bool) -> None:
    with ThreadPoolExecutor() as threads:
        ours, kafkas = threads.map(lambda one: one.sweep(names, trial), places)
    values_of = places[0].values
    found = []
    for prefix, option in names:
        for resource in (NODE, ALL):
            name = prefix + option
            mine, others = ours[name, resource], kafkas[name, resource]
            if is_stricter({name: values_of[option]}):
                alike = mine[0] != 0
            elif option in OURS | KAFKA_4_4:
                # Kafka takes whatever it does not know.
                alike = bool(mine[0]) >= BROKER_OPTION[option].read_only
            elif option in NOT_DYNAMIC:
                alike = mine[0] != 0
            elif others[1] and _OF_STORES in others[1]:
                alike = mine[0] == others[0]  # ours says what to change
            else:
                alike = mine == others
            if not alike:
                found.append(f"{name} of {resource!r}: ours {mine}, Kafka's {others}")
    assert not found, "\n".join(islice(found, 100))


def _plain(message: str | None) -> str | None:
    """Return a message without the names of Java's classes, and what is wrapped around it."""
    if message is None:
        return None
    wrapped = re.fullmatch(
        r"Invalid value org\.apache\.kafka\.common\.config\.ConfigException: (.*) for "
        r"configuration Invalid dynamic configuration",
        message,
        re.DOTALL,
    )
    plain = wrapped[1] if wrapped else message
    return re.sub(r"Set\((.*)\)", r"[\1]", plain)

