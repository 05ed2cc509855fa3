"""The levels of loggers, as clients see and set them (broker loggers, KIP-412).

The loggers are Python's, by their own names (`broker.topics.registry`), and "root" is the root
logger. Each package has a logger, whose level applies to all modules in it without a level of
their own. Levels are Kafka's: TRACE lies below DEBUG, and FATAL is CRITICAL. As in Kafka they last
until the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from odradek.broker.errors import Refusal
from odradek.protocol.errors import ErrorCode

ROOT = "root"
_PACKAGES = (
    "odradek",
    *(f"odradek.{one}" for one in ("protocol", "config", "storage", "cleaner", "broker", "cli")),
)
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def logger_levels() -> Mapping[str, str]:
    """Return the level in force of each logger."""
    return {name: _level_name(one) for name, one in _loggers().items()}


def check_level(name: str, level: str | None) -> None:
    """Raise Refusal for a logger or a level that does not exist."""
    if name not in _loggers():
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            message = "Removing the log level of the root logger is not allowed"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
    elif level not in _LEVELS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log "
            f"level. Valid log levels are {', '.join(sorted(_LEVELS))}",
        )


def set_levels(changes: Sequence[tuple[str, str | None]]) -> None:
    """Set levels that were checked; with None a logger inherits its level again."""
    known = _loggers()
    for name, level in changes:
        known[name].setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _loggers() -> Mapping[str, logging.Logger]:
    for package in _PACKAGES:
        logging.getLogger(package)
    made = logging.root.manager.loggerDict
    found = {name: one for name, one in made.items() if isinstance(one, logging.Logger)}
    return {ROOT: logging.root} | found


def _level_name(one: logging.Logger) -> str:
    level = one.getEffectiveLevel()
    return next((name for name, least in _LEVELS.items() if level >= least), "TRACE")
