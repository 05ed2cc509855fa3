"""Options of HTTP other than the listener's address: tokens, hosts, TLS, connections, schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.errors import ConfigError
from odradek.config.option import option, options
from odradek.config.registry_url import registry_url_problem
from odradek.config.values import Validator, Value, at_least, int32, password, words

_CERTIFICATE = "odradek.http.tls.certificate"
_REGISTRY_USER = "odradek.schema.registry.basic.auth.user.info"
_KEY = "odradek.http.tls.key"
# broker/web/guesses.py has the arithmetic.
_TOKEN_LENGTH_MIN = 8


def _check_token(name: str, value: Value) -> None:
    # An empty token means none: a variable that is not set arrives as an empty text.
    if 0 < len(str(value)) < _TOKEN_LENGTH_MIN:
        raise ConfigError(
            f"Invalid value for configuration {name}: it is shorter than {_TOKEN_LENGTH_MIN} "
            "characters and can be guessed; use the output of `openssl rand -hex 16`"
        )


def _check_registry(name: str, value: Value) -> None:
    # An empty address means none, as for a token.
    if not value:
        return
    if registry_url_problem(str(value)) is not None or "@" in str(value):
        raise ConfigError(
            f"Invalid value for configuration {name}: it must be http://HOST:PORT or "
            f"https://HOST:PORT; {_REGISTRY_USER} has the user and the password"
        )


REGISTRY = Validator("an address that begins with http:// or https://", _check_registry)
TOKEN = Validator(f"at least {_TOKEN_LENGTH_MIN} characters", _check_token)


@options
class HttpConfig:
    """The settings that guard metrics.listener."""

    odradek_http_read_token: password | None = option(
        "odradek.http.read.token",
        default=None,
        valid=TOKEN,
        doc="The token that a request over HTTP must show (Authorization: Bearer …) to read "
        "anything but /health; the admin token works, too. By default everybody may read, unless "
        "there is an authorizer: then reading takes the admin token.",
    )
    odradek_http_hosts: tuple[str, ...] = option(
        "odradek.http.hosts",
        default=(),
        valid=words(empty=True),
        doc="Host names that requests to the HTTP listener may use, besides its own and "
        "localhost, such as a proxy's. A request with another name is refused, so that a page "
        "whose name is made to lead here (DNS rebinding) learns nothing.",
    )
    odradek_http_tls_certificate: str | None = option(
        "odradek.http.tls.certificate",
        default=None,
        doc="A PEM file with the HTTP listener's certificate and the certificates between it and "
        "its authority. With it metrics.listener speaks TLS, 1.2 or newer. A changed file is "
        "read again within seconds.",
    )
    odradek_http_tls_key: str | None = option(
        "odradek.http.tls.key",
        default=None,
        doc="The PEM file with the certificate's private key, by default the certificate's file.",
    )
    odradek_http_tls_key_password: password | None = option(
        "odradek.http.tls.key.password",
        default=None,
        doc="The password of the private key, where it has one.",
    )
    odradek_http_connections_max: int32 = option(
        "odradek.http.connections.max",
        default=256,
        valid=at_least(2),
        doc="How many connections the HTTP listener may have at a time, each worker's part of it "
        "with `--workers`; one address may have half of them. Each further one is closed at once.",
    )

    odradek_schema_registry_url: str | None = option(
        "odradek.schema.registry.url",
        default=None,
        valid=REGISTRY,
        doc="The address of a schema registry that has Confluent's API, such as "
        "http://registry:8081. With it the page shows keys and values of Avro, Protobuf and JSON "
        "Schema by their schemas, and filters use their fields. It needs the extra `console`: "
        "pip install odradek[console].",
    )
    odradek_schema_registry_basic_auth_user_info: password | None = option(
        "odradek.schema.registry.basic.auth.user.info",
        default=None,
        doc="The user and password for the schema registry: USER:PASSWORD.",
    )

    def guards_reading(self, has_authorizer: bool) -> bool:
        """Return whether reading over HTTP takes a token."""
        return self.odradek_http_read_token is not None or has_authorizer

    @property
    def tls_files(self) -> tuple[str, str] | None:
        """The files of certificate and key, or None without TLS."""
        certificate = self.odradek_http_tls_certificate
        if certificate is None:
            return None
        return certificate, self.odradek_http_tls_key or certificate


def http_problems(config: HttpConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, with the names of its options."""
    if config.odradek_http_tls_key is not None and config.odradek_http_tls_certificate is None:
        yield f"{_KEY} is set without {_CERTIFICATE}: set both, or neither", (_KEY,)
