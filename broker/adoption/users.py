"""Takes over the users of SCRAM of Kafka's metadata, with their passwords as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.adoption.image import ClusterImage
from broker.metadata.store import MetadataStore
from broker.security.credentials import ScramCredential
from broker.security.scram_changes import MECHANISMS
from broker.security.scram_users import Key, ScramUsers


def adopted_users(image: ClusterImage) -> dict[Key, ScramCredential]:
    """Return the credentials of mechanisms that are known here, by mechanism and user."""
    return {
        (MECHANISMS[mechanism], name): ScramCredential(
            one.salt, one.stored_key, one.server_key, one.iterations
        )
        for (name, mechanism), one in image.scram.items()
        if mechanism in MECHANISMS
    }


def strange_users(image: ClusterImage) -> list[str]:
    """Name the others: those of a later Kafka."""
    return sorted(
        f"{name} (mechanism {kind})" for name, kind in image.scram if kind not in MECHANISMS
    )


async def store_users(store: MetadataStore, users: Mapping[Key, ScramCredential]) -> None:
    """Write users down. Raises MetadataError."""
    if users:
        await ScramUsers({}, store).change(users)


def names_of(users: Iterable[Key]) -> list[str]:
    """Return what to call credentials in a list."""
    return sorted(f"{name} ({mechanism})" for mechanism, name in users)
