"""Servers of the tests' own; a test is skipped where a server's program is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

import pytest

from bench.processes import NotInstalled
from bench.servers import postgresql, s3_server
from bench.servers.postgresql import Postgresql
from bench.servers.s3_server import S3Server

Server = TypeVar("Server")


def running_postgresql() -> AbstractContextManager[Postgresql]:
    """Run a new PostgreSQL."""
    return _or_skip(postgresql.running)


def running_s3_server() -> AbstractContextManager[S3Server]:
    """Run a new versitygw."""
    return _or_skip(s3_server.running)


@contextmanager
def _or_skip(running: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except NotInstalled as missing:
            pytest.skip(str(missing))
        yield server
