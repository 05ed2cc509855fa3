"""The object store of shared topics, and the threads that wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from odradek.broker.counters.object_requests import ObjectRequests
from odradek.broker.wal.pacing import WalLimits
from odradek.config.object_store import URL, ObjectStoreConfig
from odradek.storage.errors import BucketFailure
from odradek.storage.objects.counting import CountingStore
from odradek.storage.objects.hedging import HedgingStore
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.probe import probe
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import ObjectStore, ObjectStoreError, StoreUnavailable

# Threads start when they are needed.
_READS_MAX = 8


class Bucket:
    """An object store and its threads. All calls of `store` block: make them in the threads."""

    def __init__(self, config: ObjectStoreConfig) -> None:
        """Open the store without asking it anything. Raises ObjectStoreError."""
        self._closing = threading.Event()
        self.url = config.odradek_object_store_url or ""
        opened = open_store(self.url, store_options(config), os.environ)
        timeout_ms = config.odradek_object_store_timeout_ms
        self.requests = ObjectRequests(pause_ms=timeout_ms + timeout_ms // 2)
        # Below the repetitions: a bill has each attempt.
        store: ObjectStore = CountingStore(opened, self.requests.count)
        if share := config.odradek_object_store_hedged_percent / 100:
            store = HedgingStore(store, share, on_hedged=self.requests.count_hedged)
        self.store = RetryingStore(store, timeout_ms, sleep=self._pause)
        self.uploads = ThreadPoolExecutor(config.odradek_wal_uploads_max, "bucket-upload")
        self.reads = ThreadPoolExecutor(_READS_MAX, "bucket-read")

    async def close(self) -> None:
        """Cancel requests that have not begun, and wait for the others; none is repeated."""
        self._closing.set()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for threads in (self.uploads, self.reads):
            threads.shutdown(cancel_futures=True)
        self.store.close()

    def _pause(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise StoreUnavailable("the broker stops and does not repeat the request")
        self.requests.count_retry()


async def open_bucket(config: ObjectStoreConfig) -> Bucket:
    """Open the object store, and prove that shared topics are safe there.

    Raises BucketFailure.
    """
    try:
        bucket = await asyncio.to_thread(Bucket, config)
        try:
            await asyncio.to_thread(probe, bucket.store)
        except BaseException:
            await bucket.close()
            raise
    except ObjectStoreError as error:
        raise refused_bucket(error) from error
    return bucket


def refused_bucket(error: ObjectStoreError) -> BucketFailure:
    """Return the error for a store in which shared topics cannot be."""
    return BucketFailure(f"cannot use {URL}: {error}")


def wal_limits(config: ObjectStoreConfig) -> WalLimits:
    """Return the limits of a WAL with these settings."""
    return WalLimits(
        entry_bytes_max=config.odradek_wal_bytes_max,
        inline_bytes_max=config.odradek_wal_inline_bytes_max,
        linger_s=config.odradek_wal_linger_ms / 1000,
        puts_per_s=config.odradek_wal_puts_per_second,
        uploads_max=config.odradek_wal_uploads_max,
        pending_bytes_max=config.odradek_wal_pending_bytes_max,
        slow_bytes_per_s=config.odradek_wal_slow_bytes_per_second,
        commits_per_s=config.odradek_wal_commits_per_second,
    )


def store_options(config: ObjectStoreConfig) -> StoreOptions:
    """Return how to reach the store of some settings."""
    return StoreOptions(
        endpoint=config.odradek_object_store_endpoint or None,
        region=config.odradek_object_store_region or None,
        path_style=config.odradek_object_store_path_style,
        sign_payload=config.odradek_object_store_sign_payload,
        access_key_id=config.odradek_object_store_access_key_id or None,
        secret_access_key=config.odradek_object_store_secret_access_key or None,
        request_timeout_ms=config.odradek_object_store_timeout_ms,
    )
