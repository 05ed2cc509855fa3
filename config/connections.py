"""How many connections there are, and how fast new ones come: of the broker, or of a listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.option import option, options
from config.values import INT32_MAX, at_least, int32


@options
class ConnectionConfig:
    """The bounds of all listeners together, or of one (KIP-402, KIP-612)."""

    max_connections: int32 = option(
        "max.connections",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many connections may be open; further ones wait to be accepted. "
        "`listener.name.NAME.max.connections` is for one listener.",
    )
    max_connection_creation_rate: int32 = option(
        "max.connection.creation.rate",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many new connections a second are accepted. "
        "`listener.name.NAME.max.connection.creation.rate` is for one listener.",
    )


def connection_problems(_: ConnectionConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what contradicts: nothing can."""
    yield from ()
