"""The HTTP listener's options but its address: who may ask, under which names, over TLS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.errors import ConfigError
from config.option import option, options
from config.values import Validator, Value, at_least, int32, password, words

_CERTIFICATE = "odradek.http.tls.certificate"
_KEY = "odradek.http.tls.key"
# broker/web/guesses.py has the arithmetic.
_TOKEN_LENGTH_MIN = 8


def _check_token(name: str, value: Value) -> None:
    # An empty one is none, which is how a variable that is not set arrives.
    if 0 < len(str(value)) < _TOKEN_LENGTH_MIN:
        raise ConfigError(
            f"Invalid value for configuration {name}: it is shorter than {_TOKEN_LENGTH_MIN} "
            "characters, which can be guessed; take what `openssl rand -hex 16` prints"
        )


TOKEN = Validator(f"at least {_TOKEN_LENGTH_MIN} characters", _check_token)


@options
class HttpConfig:
    """How metrics.listener is guarded."""

    odradek_http_read_token: password | None = option(
        "odradek.http.read.token",
        default=None,
        valid=TOKEN,
        doc="What a request over HTTP has to show (Authorization: Bearer …) to read anything but "
        "/health; the admin token does, too. By default reading is free, unless there is an "
        "authorizer: then it takes the admin token.",
    )
    odradek_http_hosts: tuple[str, ...] = option(
        "odradek.http.hosts",
        default=(),
        valid=words(empty=True),
        doc="Names besides its own and localhost by which the HTTP listener may be asked for, "
        "those of a proxy say: a page whose name is made to lead here learns nothing.",
    )
    odradek_http_tls_certificate: str | None = option(
        "odradek.http.tls.certificate",
        default=None,
        doc="A PEM file with the HTTP listener's certificate and those between it and its "
        "authority: metrics.listener speaks TLS then, 1.2 or newer. A file that has changed is "
        "read again within seconds.",
    )
    odradek_http_tls_key: str | None = option(
        "odradek.http.tls.key",
        default=None,
        doc="The PEM file with the certificate's private key, by default the certificate's.",
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
        doc="How many connections the HTTP listener has at a time; half of them may be of one "
        "address. One more is closed at once.",
    )

    @property
    def tls_files(self) -> tuple[str, str] | None:
        """The files of certificate and key, None without TLS."""
        certificate = self.odradek_http_tls_certificate
        if certificate is None:
            return None
        return certificate, self.odradek_http_tls_key or certificate


def http_problems(config: HttpConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what contradicts, with the names that it is about."""
    if config.odradek_http_tls_key is not None and config.odradek_http_tls_certificate is None:
        yield f"{_KEY} is set without {_CERTIFICATE}: set both, or neither", (_KEY,)
