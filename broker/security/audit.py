"""The audit log: each decision on a request, in the words of Kafka's authorizer.

    Principal = User:ann is Denied operation = READ from host = 127.0.0.1 on resource =
    Topic:LITERAL:prices for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny

Denials are logged at INFO, permissions at DEBUG. Decisions that the client did not ask for, such
as the entries that are left out of a list, are logged at TRACE. No client can make the log grow
by gigabytes: a request names a resource in a few bytes, so each request may write a bounded
number of lines, and one line gives the number of the other decisions.
"""

from __future__ import annotations

import asyncio
import logging
import os
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler

from odradek.broker.api_table import BY_KEY
from odradek.broker.process.logs import JsonFormatter, TextFormatter
from odradek.broker.security.acl_index import Rule
from odradek.broker.security.authorization import AclOperation, Requester, ResourceKind
from odradek.config.errors import ConfigError

# Kafka's name of the logger, so that Kafka's settings of its level or target apply here.
LOGGER = "kafka.authorizer.logger"
_TRACE = 5  # as in broker/metadata/loggers.py
# The lines of one request at each level, so that permissions take no room from denials.
_LINES_MAX = 1_000
_LEFT_OUT_AFTER_S = 1.0  # by then most requests have made all their decisions

logger = logging.getLogger(LOGGER)


def note(
    requester: Requester,
    operation: AclOperation,
    kind: ResourceKind,
    name: str,
    rule: Rule,
    *,
    is_asked_for: bool,
    references: int,
) -> None:
    """Log a decision; `references` is the number of times the request names the resource."""
    level = _TRACE
    if is_asked_for:
        level = logging.DEBUG if rule.allowed else logging.INFO
    if not logger.isEnabledFor(level):
        return
    logged = requester.noted.logged.get(level, 0)
    if logged >= _LINES_MAX:
        _leave_out(requester, level)
        return
    requester.noted.logged[level] = logged + 1
    logger.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
        "for request = %s with resourceRefCount = %d based on rule %s",
        requester.principal,
        "Allowed" if rule.allowed else "Denied",
        operation.name,
        requester.host,
        kind.name.title().replace("_", ""),
        name,
        _api(requester),
        references,
        rule.text,
    )


def notes_allowed() -> bool:
    """Return whether permissions are logged."""
    return logger.isEnabledFor(logging.DEBUG)


class AuditFile:
    """A file for the audit log instead of the broker's log; created again when it is moved."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ConfigError."""
        try:
            self._handler = _PrivateFileHandler(path, encoding="utf-8")
        except OSError as error:
            raise refused_file(path, error) from error
        formatters = [one.formatter for one in logging.getLogger().handlers]
        # In the form of the broker's log.
        is_json = any(isinstance(one, JsonFormatter) for one in formatters)
        self._handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
        logger.addHandler(self._handler)
        logger.propagate = False
        # Independent of the level of the broker's log: the file is for the denials.
        logger.setLevel(logging.INFO)

    def close(self) -> None:
        """Close the file; the audit log goes to the broker's log again."""
        logger.removeHandler(self._handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        self._handler.close()


def refused_file(path: str, cause: OSError) -> ConfigError:
    """Return the error for a file that cannot be opened."""
    return ConfigError(
        f"odradek.audit.log: cannot write {path}: {cause.strerror}. Choose another file, "
        "or let the broker write there"
    )


class _PrivateFileHandler(WatchedFileHandler):
    """Creates files that only their owner may read."""

    def _open(self) -> TextIOWrapper:
        opened = os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        return os.fdopen(opened, "a", encoding=self.encoding)


def _leave_out(requester: Requester, level: int) -> None:
    """Count a decision without a line, and schedule the line with their number."""
    left_out = requester.noted.left_out
    if level not in left_out:
        loop = asyncio.get_running_loop()
        loop.call_later(_LEFT_OUT_AFTER_S, _report_left_out, requester, level)
    left_out[level] = left_out.get(level, 0) + 1


def _report_left_out(requester: Requester, level: int) -> None:
    logger.log(
        level,
        "Principal = %s from host = %s for request = %s: %d more decisions are left out",
        requester.principal,
        requester.host,
        _api(requester),
        requester.noted.left_out.pop(level),
    )


def _api(requester: Requester) -> str:
    api = BY_KEY.get(requester.api_key)
    return str(requester.api_key) if api is None else api.name
