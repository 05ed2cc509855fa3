"""Settings of the catalog, by which several brokers are one cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from odradek.config.errors import ConfigError
from odradek.config.option import option, options
from odradek.config.values import Validator, Value, int32, password

URL = "odradek.catalog.url"
_HEARTBEAT, _SESSION = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
_SQLITE = "sqlite"
_SCHEMES = (_SQLITE, "postgresql", "postgres")


def check_url(name: str, value: Value) -> None:
    """Raise ConfigError for a value that is no address of a catalog."""
    # The error does not quote the value, which may hold a password.
    try:
        url = urlsplit(str(value).strip())
    except ValueError:
        url = urlsplit("")
    is_file = url.scheme == _SQLITE and url.netloc == "" and url.path.startswith("/")
    if value and not is_file and url.scheme not in _SCHEMES[1:]:
        raise ConfigError(
            f"Invalid value for configuration {name}: write postgresql://user@host:port/"
            "database, or sqlite:///path for brokers of one machine"
        )


def require_file(url: str) -> None:
    """Raise ConfigError for the address of a file that does not exist."""
    parts = urlsplit(url)
    if parts.scheme == _SQLITE and not Path(parts.path).exists():
        raise ConfigError(f"there is no catalog {parts.path}")


@options
class CatalogConfig:
    """The effective settings of the catalog."""

    odradek_catalog_url: password | None = option(
        URL,
        default=None,
        valid=Validator("postgresql://…, sqlite:///path", check_url),
        doc="The database with the metadata of a cluster of brokers: "
        "postgresql://user@host:port/database, or sqlite:///path for brokers of one "
        "machine. Without one the broker is alone, and keeps the metadata in its log directories.",
    )
    broker_session_timeout_ms: int32 = option(
        _SESSION,
        default=3_000,
        doc="How long a broker may be silent before the others take it for dead, where brokers "
        "share a catalog. Kafka's default is 9000.",
    )
    broker_heartbeat_interval_ms: int32 = option(
        _HEARTBEAT,
        default=500,
        doc="How often a broker extends its session in the catalog. Kafka's default is 2000.",
    )


def catalog_problems(config: CatalogConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, with the names of its options."""
    if not config.odradek_catalog_url:
        return
    if config.broker_heartbeat_interval_ms <= 0:
        yield f"{_HEARTBEAT} must be at least 1", (_HEARTBEAT,)
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        text = f"{_SESSION} must be at least twice {_HEARTBEAT}: one late answer would end it"
        yield text, (_SESSION, _HEARTBEAT)
