"""Spark reads and writes over SASL_SSL, by a password and by a delegation token (KIP-48).

A token is handed to executors as Hadoop hands them out: in the credentials of the user, of the
kind that Spark's own provider makes. That provider asks for a token itself only where Hadoop
logs in by Kerberos, so here the token is made by the administrator.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.processes import OdradekProcess
from tests.logins.brokers import PASSWORD, TOPIC, Keys, Secured, running
from tests.logins.logins import Login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "secured"
ROWS = 200


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Certificates."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def broker(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that lets nobody in without a login."""
    with running(OdradekProcess, tmp_path_factory.mktemp("odradek"), keys) as secured:
        yield secured
    assert "Traceback" not in secured.process.log_text()


def _round_trip(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Write rows that nobody else has written, and read them again."""
    mark = uuid.uuid4().hex
    rows = spark.range(ROWS).selectExpr(
        "cast(id as string) as key", f"concat('{mark}-', cast(id as string)) as value"
    )
    rows.write.format("kafka").options(**options).option("topic", TOPIC).save()
    read = spark.read.format("kafka").options(**options).option("subscribe", TOPIC).load()
    values = read.selectExpr("cast(value as string) as value").where(f"value like '{mark}-%'")
    assert sorted(one.value for one in values.collect()) == sorted(
        f"{mark}-{number}" for number in range(ROWS)
    )


def _options(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in properties.items()}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_by_a_password(
    mechanism: str, spark: SparkSession, broker: Secured, keys: Keys, tmp_path: Path
) -> None:
    login = Login(mechanism, keys.ca, "alice", PASSWORD)
    options = _options(login.java(tmp_path))
    _round_trip(spark, {**options, "kafka.bootstrap.servers": broker.bootstrap(login)})


def test_by_a_wrong_password(
    spark: SparkSession, broker: Secured, keys: Keys, tmp_path: Path
) -> None:
    login = Login("PLAIN", keys.ca, "alice", "the wrong one")
    options = _options(login.java(tmp_path))
    options["kafka.bootstrap.servers"] = broker.bootstrap(login)
    with pytest.raises(Exception, match="Authentication failed: Invalid username or password"):
        _round_trip(spark, options)


@pytest.fixture
def token(spark: SparkSession, broker: Secured, keys: Keys) -> Iterator[dict[str, str]]:
    """A delegation token among the user's credentials, and Spark's settings for the cluster."""
    token_id, hmac = broker.tokens["right"]
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    hadoop = jvm.org.apache.hadoop
    made = hadoop.security.token.Token(
        token_id.encode(),
        # Spark takes it for a text, as Kafka's own tool prints it.
        hmac.encode(),
        hadoop.io.Text("KAFKA_DELEGATION_TOKEN"),
        hadoop.io.Text(f"kafka.server.delegation.token.{CLUSTER}"),
    )
    users = hadoop.security.UserGroupInformation
    before = users.getLoginUser()
    # A user of its own: other tests' sessions are in the same Java process.
    user = users.createRemoteUser(before.getShortUserName())
    user.addToken(made)
    users.setLoginUser(user)
    bootstrap = f"localhost:{broker.ports['SASL_SSL']}"
    prefix = f"spark.kafka.clusters.{CLUSTER}"
    settings = {
        f"{prefix}.auth.bootstrap.servers": bootstrap,
        f"{prefix}.target.bootstrap.servers.regex": bootstrap,
        f"{prefix}.security.protocol": "SASL_SSL",
        f"{prefix}.sasl.token.mechanism": "SCRAM-SHA-256",
    }
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    for name, value in settings.items():
        conf.set(name, value)
    yield {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(keys.ca),
    }
    users.setLoginUser(before)
    for name in settings:
        conf.remove(name)


def test_by_a_delegation_token(spark: SparkSession, token: dict[str, str]) -> None:
    _round_trip(spark, {**token, "kafka.security.protocol": "SASL_SSL"})
