"""The object store of shared topics is opened, probed and closed, or the start says why not."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.processes import free_port
from bench.servers.s3_server import KEY, KEY_ID, REGION, S3Server
from odradek.broker.serve import StartError, explaining
from odradek.broker.shared import bucket as module
from odradek.broker.shared.bucket import open_bucket, wal_limits
from odradek.broker.wal.pacing import WalLimits
from odradek.config.effective import resolve_apart
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.resolution import Layer, Source
from odradek.storage.files import Buffer
from odradek.storage.objects.obstore_store import joined
from odradek.storage.objects.store import StoreUnavailable
from tests.broker.live import until
from tests.storage.object_stores import bucket, s3_server
from tests.support.object_store import MemoryStore

__all__ = ["bucket", "s3_server"]

_STORE = "odradek.object.store."


def config_of(url: str, **settings: str) -> ObjectStoreConfig:
    """Return settings of the store; a name is written with underscores and without the prefix."""
    values = {_STORE + name.replace("_", "."): value for name, value in settings.items()}
    return resolve_apart(
        ObjectStoreConfig, [Layer(Source.STATIC_BROKER, {f"{_STORE}url": url, **values})]
    )


def of_server(server: S3Server, url: str, **settings: str) -> ObjectStoreConfig:
    own = {"endpoint": server.endpoint, "region": REGION, "path_style": "true"}
    return config_of(url, **{**own, **settings})


async def use(config: ObjectStoreConfig) -> None:
    """Open a bucket, write and read in its threads, and close it."""
    loop = asyncio.get_running_loop()
    opened = await open_bucket(config)
    try:
        assert list(opened.store.list_objects("")) == []  # the probe leaves nothing
        await loop.run_in_executor(opened.uploads, opened.store.create, "wal/1", b"data")
        assert await loop.run_in_executor(opened.reads, opened.store.read, "wal/1") == b"data"
    finally:
        await opened.close()
    for threads in (opened.uploads, opened.reads):
        with pytest.raises(RuntimeError, match="after shutdown"):
            threads.submit(print)


async def refusal(config: ObjectStoreConfig) -> str:
    """Return the line with which a start ends that cannot use the store."""
    with pytest.raises(StartError) as caught, explaining():
        await open_bucket(config)
    trace = "".join(traceback.format_exception(caught.value))
    assert KEY not in trace
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("cannot use odradek.object.store.url: ")
    return line


async def test_a_folder_is_a_bucket(tmp_path: Path) -> None:
    await use(config_of(tmp_path.as_uri()))


async def test_a_bucket_is_opened_with_the_keys_of_the_settings(
    s3_server: S3Server, bucket: str
) -> None:
    keys = {"access_key_id": KEY_ID, "secret_access_key": KEY}
    await use(of_server(s3_server, f"{bucket}/keys", **keys))


async def test_a_bucket_is_opened_with_the_variables_of_aws(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_REGION": REGION,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    empty = dict.fromkeys(("endpoint", "region", "access_key_id", "secret_access_key"), "")
    await use(config_of(f"{bucket}/variables"))
    await use(config_of(f"{bucket}/empty", **empty))


async def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    line = await refusal(config_of((tmp_path / "none").as_uri()))
    assert "check the folder" in line


async def test_a_bucket_that_does_not_exist(s3_server: S3Server) -> None:
    keys = {"access_key_id": KEY_ID, "secret_access_key": KEY}
    line = await refusal(of_server(s3_server, "s3://none", **keys))
    assert "s3://none" in line
    assert "create the bucket, or correct its name" in line


async def test_a_wrong_key_is_not_shown(s3_server: S3Server, bucket: str) -> None:
    keys = {"access_key_id": KEY_ID, "secret_access_key": "a-wrong-secret"}
    line = await refusal(of_server(s3_server, bucket, **keys))
    assert "check the secret access key" in line
    assert "a-wrong-secret" not in line


async def test_a_store_that_does_not_answer_is_waited_for_until_the_timeout() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    keys = {"access_key_id": KEY_ID, "secret_access_key": KEY, "region": REGION}
    line = await refusal(config_of("s3://topics", endpoint=endpoint, timeout_ms="100", **keys))
    assert "no connection; check the endpoint" in line


class Overwriting(MemoryStore):
    """A store without create-only writes."""

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        self.objects[key] = joined(data)


async def test_a_store_that_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Overwriting()
    monkeypatch.setattr(module, "open_store", lambda *_: store)
    assert await refusal(config_of("s3://topics")) == (
        "cannot use odradek.object.store.url: the object store has no create-only writes "
        "(If-None-Match: *), and cannot hold shared topics: choose another store"
    )
    assert not store.objects


async def test_closing_does_not_wait_for_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(module, "open_store", lambda *_: store)
    opened = await open_bucket(config_of("s3://topics", timeout_ms="3600000"))
    tries: list[str] = []

    def fail(key: str) -> bytes:
        tries.append(key)
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(store, "read", fail)
    reading = opened.reads.submit(opened.store.read, "k")
    await until(lambda: len(tries) > 1)
    async with asyncio.timeout(60):
        await opened.close()
    assert isinstance(reading.exception(), StoreUnavailable)


def test_the_limits_of_the_wal_are_those_of_the_settings() -> None:
    assert wal_limits(ObjectStoreConfig()) == WalLimits()
    config = ObjectStoreConfig(
        odradek_wal_bytes_max=5,
        odradek_wal_inline_bytes_max=4,
        odradek_wal_linger_ms=20,
        odradek_wal_puts_per_second=3,
        odradek_wal_uploads_max=2,
        odradek_wal_slow_bytes_per_second=1,
        odradek_wal_commits_per_second=7,
    )
    assert wal_limits(config) == WalLimits(
        entry_bytes_max=5,
        inline_bytes_max=4,
        linger_s=0.02,
        puts_per_s=3,
        uploads_max=2,
        slow_bytes_per_s=1,
        commits_per_s=7,
    )
