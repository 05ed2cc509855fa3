"""The login of a broker at others is one that Apache Kafka's broker accepts, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from bench.processes import kafka_libs
from odradek.broker.metadata.members import Endpoint
from odradek.broker.peers.connections import Connection
from odradek.broker.peers.errors import PeerRefuses
from odradek.broker.peers.logins import log_in
from odradek.config.inter_broker import OwnLogin
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.kafka_peer import Peer
from tests.broker.live import on_uvloop, until
from tests.broker.sasl_brokers import Listeners, kafka
from tests.broker.sasl_client import USERS
from tests.broker.test_scram_users import SHA_256, upsert

pytestmark = pytest.mark.kafka

NAME, SECRET = "b,r=oker", "b\u00e9,=secret"
PLAIN = OwnLogin("PLAIN", "bob", USERS["bob"])
SCRAM = OwnLogin("SCRAM-SHA-256", NAME, SECRET)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    with kafka(tmp_path_factory.mktemp("kafka")) as found:
        with Peer(found.plaintext) as peer:
            request = AlterUserScramCredentialsRequest(
                deletions=[], upsertions=[upsert(NAME, SECRET, SHA_256)]
            )
            (result,) = peer.ask(request, 0).results
            assert not result.error_code
        yield found


def connected(port: int, login: OwnLogin, listener: str = "SASL") -> Connection:
    endpoint = Endpoint(listener, "127.0.0.1", port, "SASL_PLAINTEXT")
    return Connection(endpoint, "broker-1", None, partial(log_in, login=login))


async def ask(connection: Connection) -> MetadataResponse:
    return await connection.ask(MetadataRequest(topics=[]), 12, MetadataResponse)


@pytest.mark.parametrize("login", [PLAIN, SCRAM], ids=lambda login: login.mechanism)
@on_uvloop
async def test_kafka_lets_a_broker_in(theirs: Listeners, login: OwnLogin) -> None:
    async def is_in() -> bool:  # a new user is not known at once
        connection = connected(theirs.sasl, login)
        try:
            return bool((await ask(connection)).brokers)
        except PeerRefuses:
            return False
        finally:
            connection.close()

    await until(is_in)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@on_uvloop
async def test_kafka_refuses_a_wrong_password(theirs: Listeners, mechanism: str) -> None:
    connection = connected(theirs.sasl, OwnLogin(mechanism, "bob", "guessed"))
    with pytest.raises(PeerRefuses, match="refuses the login of this broker: Authentication fail"):
        await ask(connection)


@on_uvloop
async def test_kafka_names_the_mechanisms_that_it_has(theirs: Listeners) -> None:
    connection = connected(theirs.sasl, OwnLogin("SCRAM-SHA-512", NAME, SECRET))
    with pytest.raises(PeerRefuses, match=r"serves .*PLAIN.* at its listener SASL, not SCRAM-SHA"):
        await ask(connection)


@on_uvloop
async def test_a_login_with_an_end_is_used_until_shortly_before(theirs: Listeners) -> None:
    connection = connected(theirs.short, PLAIN, "SHORT")
    assert (await ask(connection)).brokers
    assert connection.is_usable
    await until(lambda: not connection.is_usable)
    assert (await ask(connection)).brokers  # its login still lasts
    connection.close()
