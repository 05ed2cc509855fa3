"""Takes over the quotas of Kafka's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.broker.adoption.image import ClusterImage
from odradek.broker.errors import Refusal
from odradek.broker.metadata.store import MetadataStore, SecurityKind
from odradek.broker.security.quotas.entities import (
    Entity,
    check_entity,
    check_quota,
    entity_of,
    write_entity,
    write_quotas,
)


def adopted_quotas(image: ClusterImage) -> dict[Entity, dict[str, float]]:
    """Return the quotas that Odradek understands."""
    quotas: dict[Entity, dict[str, float]] = {}
    for entity, key, value in _all(image):
        if not _is_strange(entity, key, value):
            quotas.setdefault(entity, {})[key] = value
    return quotas


def strange_quotas(image: ClusterImage) -> list[tuple[Entity, str]]:
    """Return the quotas that only a later Kafka understands."""
    return [
        (entity, key) for entity, key, value in _all(image) if _is_strange(entity, key, value)
    ]


async def store_quotas(store: MetadataStore, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
    """Store quotas. Raises MetadataError."""
    rows = {write_entity(entity): write_quotas(of_entity) for entity, of_entity in quotas.items()}
    await store.change_security(SecurityKind.QUOTA, rows)


def _all(image: ClusterImage) -> Iterator[tuple[Entity, str, float]]:
    for (parts, key), value in image.quotas.items():
        yield entity_of(parts), key, value


def _is_strange(entity: Entity, key: str, value: float) -> bool:
    try:
        check_entity(entity)
        check_quota(entity, key, value)
    except Refusal:
        return True
    return False
