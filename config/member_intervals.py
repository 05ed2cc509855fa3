"""The checks that consumer and streams groups have in common: intervals of their members."""

from __future__ import annotations

from collections.abc import Iterator

_HEARTBEAT, _SESSION = "heartbeat.interval.ms", "session.timeout.ms"


def interval_problems(prefix: str, config: object) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each contradiction, in Kafka's words, with the names of its options.

    `config` has the options that begin with the prefix, as attributes.
    """

    def value(option: str) -> int:
        found: int = getattr(config, option.replace(".", "_"))
        return found

    for name in (_HEARTBEAT, _SESSION, "assignment.interval.ms"):
        lowest, own, highest = f"{prefix}min.{name}", f"{prefix}{name}", f"{prefix}max.{name}"
        if value(highest) < value(lowest):
            yield f"{highest} must be greater than or equal to {lowest}", (highest, lowest)
        if value(own) < value(lowest):
            yield f"{own} must be greater than or equal to {lowest}", (own, lowest)
        if value(own) > value(highest):
            yield f"{own} must be less than or equal to {highest}", (own, highest)
    heartbeat, session = f"{prefix}{_HEARTBEAT}", f"{prefix}{_SESSION}"
    if value(heartbeat) >= value(session):
        yield f"{heartbeat} must be less than {session}", (heartbeat, session)
