"""AlterClientQuotas (49): set and remove quotas (KIP-546).

Version notes: 1 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, float64, int16, int32, string


@struct
class EntityData:
    """One part of an entity; without a name it is the default."""

    entity_type: string
    entity_name: string | None


@struct
class OpData:
    """A quota to set or to remove."""

    key: string
    value: float64
    remove: boolean


@struct
class EntryData:
    """An entity and the changes to its quotas."""

    entity: list[EntityData]
    ops: list[OpData]


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Each entity is changed independently."""

    entries: list[EntryData]
    validate_only: boolean


@struct
class AlteredEntryData:
    """The result for one entity."""

    error_code: int16 = field()
    error_message: string | None = field()
    entity: list[EntityData]


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The outcome by entity."""

    throttle_time_ms: int32 = field()
    entries: list[AlteredEntryData]
