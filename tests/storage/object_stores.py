"""Fixtures of object stores: a real server of S3, a folder, and one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers.s3_server import S3Server
from odradek.storage.objects.opening import open_store
from odradek.storage.objects.store import ObjectStore
from tests.support.object_store import MemoryStore
from tests.support.servers import running_s3_server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with running_s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket("topics")


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty store of each kind."""
    opened: ObjectStore
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "file":
        opened = open_store(tmp_path.as_uri())
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        bucket: str = request.getfixturevalue("bucket")
        opened = open_store(f"{bucket}/{tmp_path.name}", server.options())
    yield opened
    opened.close()
