"""Sequential reads of shared topics' segments that are not on this machine.

    python -m bench.cold_reads [--store s3://bucket/prefix] [--no-delays]

Each reader reads segments of its own, 1 MiB at a time as a consumer's fetches do, through
CachedFiles with an empty cache. Without an address the bucket is a folder. Each request gets the
delay of a cloud in addition: 30 ms, and 90 MB/s for its bytes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odradek.storage.files import Buffer
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.remote_files import RemoteFile
from odradek.storage.objects.store import ObjectStore, StoredObject
from odradek.storage.real_files import RealFileSystem

_SEGMENT_BYTES, _PIECE_BYTES = 256 << 20, 1 << 20
_REQUEST_S, _BYTES_PER_S = 0.030, 90_000_000


class Delayed:
    """A store with the delays of a cloud."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        self._store.create(key, data)

    def read(self, key: str) -> bytes:
        return self._store.read(key)

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        time.sleep(_REQUEST_S + size_bytes / _BYTES_PER_S)
        return self._store.read_range(key, position, size_bytes)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        return self._store.list_objects(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def close(self) -> None:
        self._store.close()


def read_whole(fs: CachedFiles, path: Path) -> None:
    """Read a file as a consumer does."""
    for position in range(0, _SEGMENT_BYTES, _PIECE_BYTES):
        held = fs.open(path).hold()  # each fetch holds the file
        found = held.read_cached(position, _PIECE_BYTES) or held.read(position, _PIECE_BYTES)
        assert len(found) == _PIECE_BYTES


def measure(name: str, store: ObjectStore, keys: Sequence[str], folder: Path) -> None:
    """Read one file for each key at the same time, and print the rate."""
    fs = CachedFiles(RealFileSystem(), (len(keys) * _SEGMENT_BYTES) // 2)
    paths = [folder / key.rpartition("/")[2] for key in keys]
    for key, path in zip(keys, paths, strict=True):
        fs.add_remote(path, RemoteFile(store, key, 0, _SEGMENT_BYTES, None, 0))
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(len(keys)) as readers:
        list(readers.map(lambda path: read_whole(fs, path), paths))
    spent_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    fs.close()
    sum_bytes = len(keys) * _SEGMENT_BYTES
    assert fs.counters.fetched_bytes >= sum_bytes
    print(
        f"{name:24} {sum_bytes / spent_s / 1e6:7.1f} MB/s  "
        f"{fs.counters.requests / len(keys):6.1f} requests a segment of 256 MiB  "
        f"{cpu_s / sum_bytes * 1e9:5.2f} s CPU/GB  "
        f"{fs.cached_bytes >> 20} MiB of {(len(keys) * _SEGMENT_BYTES) >> 21} MiB in use",
        flush=True,
    )
    for path in paths:
        fs.remove(path)


def main() -> None:
    """Store segments, and read them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store")
    parser.add_argument("--no-delays", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        (folder / "bucket").mkdir()
        store = open_store(args.store or f"file://{folder / 'bucket'}", StoreOptions())
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        keys = [f"{prefix}/{at:020d}.log" for at in range(4)]
        segment = os.urandom(_SEGMENT_BYTES)
        for key in keys:
            store.create(key, segment)
        delayed = store if args.no_delays else Delayed(store)
        try:
            for count in (1, 2, 4):
                measure(f"{count} readers", delayed, keys[:count], folder)
        finally:
            store.delete(keys)
            store.close()


if __name__ == "__main__":
    main()
