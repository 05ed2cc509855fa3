"""A client's properties: Java's words in librdkafka's, and what has none there."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.client_config import ClientConfigError, client_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def _of(tmp_path: Path, text: str, *pairs: str) -> dict[str, str]:
    file = tmp_path / "client.properties"
    file.write_text(text)
    return client_properties(file, pairs)


@pytest.mark.parametrize("module", [PLAIN, SCRAM])
def test_a_login_is_a_user_and_a_password(module: str, tmp_path: Path) -> None:
    text = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required \\\n  username="ann" password="a \\\\"b=;c";\n'
    )
    assert _of(tmp_path, text) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": 'a "b=;c',
    }


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        (
            'clientId="me" clientSecret="a b" scope="produce"',
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "a b",
                "sasl.oauthbearer.scope": "produce",
            },
        ),
        ("", {"sasl.oauthbearer.method": "oidc"}),
        (
            'unsecuredLoginStringClaim_sub="ann"',
            {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=ann",
            },
        ),
    ],
)
def test_a_login_is_a_token(options: str, properties: dict[str, str], tmp_path: Path) -> None:
    handler = "sasl.login.callback.handler.class=some.OAuthBearerLoginCallbackHandler\n"
    text = f"{handler}sasl.jaas.config={BEARER} required {options} ;\n"
    assert _of(tmp_path, text) == properties


def test_pem_files_and_texts_are_taken_and_serializers_left_out(tmp_path: Path) -> None:
    text = (
        "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        "ssl.keystore.type=pem\nssl.keystore.location=me.pem\nssl.key.password=x\n"
        "ssl.keystore.password=unused\n"
        "ssl.endpoint.identification.algorithm=\nkey.serializer=some.Class\nacks=1\n"
    )
    assert _of(tmp_path, text) == {
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "none",
        "acks": "1",
    }
    texts = (
        "ssl.truststore.certificates=A\nssl.keystore.certificate.chain=B\nssl.keystore.key=C\n"
    )
    assert _of(tmp_path, texts) == {
        "ssl.ca.pem": "A",
        "ssl.certificate.pem": "B",
        "ssl.key.pem": "C",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssl.truststore.location=a.jks", "Java key store .JKS.*ssl.truststore.type=PEM"),
        ("ssl.keystore.type=JKS\nssl.keystore.location=a", "ssl.keystore.location"),
        ("sasl.jaas.config=nonsense", "MODULE required"),
        (f'sasl.jaas.config={PLAIN} required username="a";', "no password"),
        ("sasl.jaas.config=a.Krb5LoginModule required useKeyTab=true;", "Krb5LoginModule"),
        ("a=\\uzz", "line 1: Malformed"),
    ],
)
def test_unusable_properties_are_reported_in_one_line(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClientConfigError, match=message) as raised:
        _of(tmp_path, text)
    assert "\n" not in str(raised.value) and "client.properties" in str(raised.value)


def test_a_pair_wins_over_the_file_and_may_have_an_equals_sign(tmp_path: Path) -> None:
    assert _of(tmp_path, "acks=1", "acks=all", "client.id=a=b") == {
        "acks": "all",
        "client.id": "a=b",
    }
    with pytest.raises(ClientConfigError, match="-X acks is not KEY=VALUE"):
        client_properties(None, ["acks"])
