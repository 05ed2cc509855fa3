"""Translates a client's properties file for Kafka's tools into librdkafka's properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

# Properties of Java clients that mean nothing to librdkafka; a user may well leave them in.
_WITHOUT_MEANING = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "metric.reporters",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
    }
)
_STORE = re.compile(r"ssl\.(keystore|truststore)\.type")
_LOGIN = re.compile(r"^\s*([\w.$]+)\s+required\b(.*);\s*$", re.DOTALL)
_LOGIN_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULE = "OAuthBearerLoginModule"
_UNSECURED = "unsecuredLoginStringClaim_sub"


class ClientConfigError(Exception):
    """A property cannot be used; the message names the remedy."""


def client_properties(file: Path | None, pairs: Iterable[str]) -> dict[str, str]:
    """Return librdkafka's properties from a file, then from KEY=VALUE pairs; the last one wins."""
    properties = translated(_read(file), str(file)) if file else {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ClientConfigError(f"-X {pair} is not KEY=VALUE")
        properties[key.strip()] = value
    return properties


def translated(java: dict[str, str], file: str) -> dict[str, str]:
    """Return librdkafka's properties for those of a Java client; raises ClientConfigError."""
    types = {m.group(1): value.upper() for k, value in java.items() if (m := _STORE.fullmatch(k))}
    found: dict[str, str] = {}
    for key, value in java.items():
        if key in _WITHOUT_MEANING or _STORE.fullmatch(key):
            continue
        if key == "sasl.jaas.config":
            found.update(_login(value, file))
        elif key.startswith(("ssl.keystore.", "ssl.truststore.")):
            found.update(_store(key, value, types, file))
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        else:
            found[key] = value
    return found


def _read(file: Path) -> dict[str, str]:
    from odradek.config.errors import ConfigError
    from odradek.config.properties import from_properties

    try:
        # Java reads properties as ISO 8859-1, in which any byte is some character.
        settings = from_properties(file.read_bytes().decode("latin-1"), str(file))
    except OSError as error:
        raise ClientConfigError(f"cannot read {file}: {error.strerror}") from error
    except ConfigError as error:
        raise ClientConfigError(str(error)) from error
    return {key: value for key, (value, _) in settings.items()}


def _login(text: str, file: str) -> dict[str, str]:
    login = _LOGIN.match(text)
    if not login:
        raise ClientConfigError(
            f'{file}: sasl.jaas.config is not `MODULE required username="…" password="…";`'
        )
    module = login.group(1).rpartition(".")[2]
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) or bare
        for name, quoted, bare in _LOGIN_OPTION.findall(login.group(2))
    }
    if module == _TOKEN_MODULE:
        return _token(options)
    if module not in _PASSWORD_MODULES:
        raise ClientConfigError(
            f"{file}: sasl.jaas.config: {module} cannot be used here, only "
            f"{', '.join(_PASSWORD_MODULES)} and {_TOKEN_MODULE}: give librdkafka's own "
            "properties with -X"
        )
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ClientConfigError(f"{file}: sasl.jaas.config has no {missing[0]}")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _token(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a login by a token: of an endpoint, or an unsecured one."""
    if _UNSECURED in options:
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={options[_UNSECURED]}",
        }
    names = (("clientId", "client.id"), ("clientSecret", "client.secret"), ("scope", "scope"))
    given = {f"sasl.oauthbearer.{name}": options[key] for key, name in names if key in options}
    return {"sasl.oauthbearer.method": "oidc", **given}


def _store(key: str, value: str, types: dict[str, str], file: str) -> dict[str, str]:
    which, _, what = key.removeprefix("ssl.").partition(".")
    kind = types.get(which, "JKS")
    if what in ("certificates", "certificate.chain", "key"):
        own = {"certificates": "ca", "certificate.chain": "certificate", "key": "key"}[what]
        return {f"ssl.{own}.pem": value}
    if what == "location" and kind == "PEM":
        names = ("ca",) if which == "truststore" else ("certificate", "key")
        return {f"ssl.{name}.location": value for name in names}
    if which == "keystore" and kind == "PKCS12":
        return {key: value}
    if what == "password" and kind == "PEM":
        return {}
    raise ClientConfigError(
        f"{file}: {key}: a Java key store ({kind}) cannot be read here: convert it to PEM "
        f"(keytool, openssl pkcs12), and set ssl.{which}.type=PEM"
    )
