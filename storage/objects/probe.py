"""Proves that an object store has all that shared topics need."""

import uuid

from odradek.storage.objects.store import (
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    StoreRefused,
    StoreUnavailable,
)

_FIRST, _SECOND = b"the first object", b"another one"


def probe(store: ObjectStore) -> None:
    """Write, read, list and delete an object below probe/.

    Raise StoreRefused, which names the first lack. StoreUnavailable passes.
    Nothing remains in a store that deletes.
    """
    key = f"probe/{uuid.uuid4().hex}"
    try:
        store.create(key, _FIRST)
        try:
            _prove_reads(store, key)
        finally:
            store.delete([key])
        _prove(_is_missing(store, key), "no deletes")
    except (StoreUnavailable, StoreRefused):
        raise
    except ObjectStoreError as error:
        raise StoreRefused(f"the object store cannot be used: {error}") from error


def _prove_reads(store: ObjectStore, key: str) -> None:
    _prove(store.read(key) == _FIRST, "no reads right after writes")
    try:
        store.create(key, _SECOND)
    except ObjectExists:
        pass
    else:
        _prove(False, "no create-only writes (If-None-Match: *)")
    _prove(store.read(key) == _FIRST, "no create-only writes (If-None-Match: *)")
    _prove(store.size(key) == len(_FIRST), "no true sizes")
    _prove(store.read_range(key, 4, 5) == _FIRST[4:9], "no reads of ranges")
    listed = [one.key for one in store.list_objects("probe/")]
    _prove(key in listed, "no listings right after writes")


def _is_missing(store: ObjectStore, key: str) -> bool:
    try:
        store.read(key)
    except ObjectMissing:
        return True
    return False


def _prove(holds: bool, lacking: str) -> None:
    if not holds:
        raise StoreRefused(
            f"the object store has {lacking}, and cannot hold shared topics: "
            "choose another store"
        )
