"""Takes over the SCRAM users of Kafka's metadata, with their passwords unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.adoption.image import ClusterImage
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.scram_changes import MECHANISMS
from odradek.broker.security.scram_users import Key, ScramUsers


def adopted_users(image: ClusterImage) -> dict[Key, ScramCredential]:
    """Return the credentials of known mechanisms, by mechanism and user."""
    return {
        (MECHANISMS[mechanism], name): ScramCredential(
            one.salt, one.stored_key, one.server_key, one.iterations
        )
        for (name, mechanism), one in image.scram.items()
        if mechanism in MECHANISMS
    }


def strange_users(image: ClusterImage) -> list[str]:
    """Return the names of the users whose mechanism only a later Kafka knows."""
    return sorted(
        f"{name} (mechanism {kind})" for name, kind in image.scram if kind not in MECHANISMS
    )


async def store_users(store: MetadataStore, users: Mapping[Key, ScramCredential]) -> None:
    """Store users. Raises MetadataError."""
    if users:
        await ScramUsers({}, store).change(users)


def names_of(users: Iterable[Key]) -> list[str]:
    """Return the names of credentials for a list."""
    return sorted(f"{name} ({mechanism})" for mechanism, name in users)
