"""The contract of an object store for shared topics, and its errors.

All calls block: call them from a thread, never from the event loop.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

from odradek.dataclass import dataclass
from odradek.storage.files import Buffer


class ObjectStoreError(Exception):
    """A request to the object store failed; `retriable` if the same request may succeed later.

    Its text names the remedy and never holds a credential.
    """

    retriable: ClassVar[bool] = False


class ObjectExists(ObjectStoreError):
    """The key exists already: an object is created once and never overwritten."""


class ObjectMissing(ObjectStoreError):
    """No object has this key."""


class ObjectDamaged(ObjectStoreError):
    """The object is shorter than the catalog or the request says."""


class StoreUnavailable(ObjectStoreError):
    """The store did not answer, or asked for fewer requests (503 SlowDown).

    A create that ends so may have happened, or may still happen.
    """

    retriable = True


class StoreRefused(ObjectStoreError):
    """The store refuses until an operator acts: credentials, permissions, bucket, space, clock."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects by key, created once; any method may raise StoreUnavailable or StoreRefused."""

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store data, or a sequence of buffers joined; raise ObjectExists if there is one."""

    def read(self, key: str) -> bytes:
        """Read a whole object; raise ObjectMissing."""

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Read exactly size_bytes; raise ObjectMissing, or ObjectDamaged if there are fewer."""

    def size(self, key: str) -> int:
        """Return the size in bytes; raise ObjectMissing."""

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List the objects whose keys begin with prefix, in the order of their keys."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that does not exist is no error."""

    def close(self) -> None:
        """Release connections; no call may follow."""
