"""DescribeClientQuotas (48): quotas of users, client ids and addresses (KIP-546).

Version notes: 1 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, float64, int8, int16, int32, string


@struct
class ComponentData:
    """A filter for one type of entity; match types are 0 a name, 1 the default, 2 any."""

    entity_type: string
    match_type: int8
    match: string | None


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """A strict request leaves out entities with types that it does not name."""

    components: list[ComponentData]
    strict: boolean


@struct
class EntityData:
    """One part of an entity; without a name it is the default."""

    entity_type: string
    entity_name: string | None


@struct
class ValueData:
    """One quota."""

    key: string
    value: float64


@struct
class EntryData:
    """An entity and its quotas."""

    entity: list[EntityData]
    values: list[ValueData]


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas; null with an error."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field()
    entries: list[EntryData] | None
