"""An object store of S3, Google or Azure, or a folder, by the library obstore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from odradek.storage.files import Buffer
from odradek.storage.objects.failures import failure_of
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectMissing,
    StoredObject,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend


class ObstoreStore:
    """Objects below the address that a backend of obstore was opened for; it retries nothing."""

    def __init__(self, backend: Backend, address: str) -> None:
        self._opened: Backend | None = backend
        self._address = address.rstrip("/")

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store data in one request, which the store refuses if there is an object."""
        with self._errors("create", key):
            # A multipart upload would not be create-only in every store.
            obstore.put(self._backend, key, joined(data), mode="create", use_multipart=False)

    def read(self, key: str) -> bytes:
        """Read a whole object."""
        with self._errors("read", key):
            return obstore.get(self._backend, key).bytes().to_bytes()

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Read exactly size_bytes."""
        if not size_bytes:  # no HTTP range is empty
            if self.size(key) < position:
                raise ObjectDamaged(f"read {self._address}/{key}: the object is too short")
            return b""
        with self._errors("read", key):
            found = obstore.get_range(self._backend, key, start=position, length=size_bytes)
        if len(found) != size_bytes:
            raise ObjectDamaged(
                f"read {self._address}/{key}: {len(found)} bytes at position {position}, "
                f"not {size_bytes}"
            )
        return memoryview(found)  # as it is: a copy would take half as long as the request

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        try:
            with self._errors("look at", key):
                return obstore.head(self._backend, key)["size"]
        except ObjectMissing:
            # An answer without a body is the same for a missing bucket and a missing object.
            with self._errors("look at", key):
                return obstore.get(self._backend, key).meta["size"]

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List the objects whose keys begin with prefix; one that ends with / costs least."""
        # The library lists whole folders, and not every store sorts.
        folder = prefix.rpartition("/")[0]
        with self._errors("list", prefix):
            found = [
                StoredObject(
                    one["path"], one["size"], round(one["last_modified"].timestamp() * 1000)
                )
                for page in obstore.list(self._backend, folder or None)
                for one in page
                if one["path"].startswith(prefix)
            ]
        return iter(sorted(found, key=lambda one: one.key))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, by one request where the store can."""
        if not keys:
            return
        try:
            with self._errors("delete", keys[0]):
                obstore.delete(self._backend, list(keys))
        except ObjectMissing:
            # Some stores end the whole request at a missing object.
            for key in keys:
                self._delete_one(key)

    def close(self) -> None:
        """Let go of the backend, and so of its connections."""
        self._opened = None

    @property
    def _backend(self) -> Backend:
        if self._opened is None:  # a thread reads while the broker stops
            raise StoreUnavailable(f"{self._address}: the store is closed")
        return self._opened

    def _delete_one(self, key: str) -> None:
        try:
            with self._errors("delete", key):
                obstore.delete(self._backend, key)
        except ObjectMissing:
            pass

    @contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            # Without its cause, which may hold a credential.
            raise failure_of(operation, f"{self._address}/{key}", error) from None


def joined(data: Buffer | Sequence[Buffer]) -> bytes:
    """Return a buffer, or a sequence of buffers, as bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    return b"".join(data)
