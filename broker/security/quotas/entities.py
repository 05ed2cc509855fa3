"""The entities of quotas, the kinds of quotas, and the checks of both.

An entity is a user, a client id, both, or an address; without a name, a part stands for all
users, clients or addresses that have no quota of their own. The checks and their messages are
those of Kafka's ClientQuotaControlManager.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.errors import Refusal
from odradek.broker.orders.java import hash_order, string_hash
from odradek.config.values import INT32_MAX, INT64_MAX
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import Pace, unpaced

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
CONNECTION = "connection_creation_rate"

# The largest value of each quota that has to be a whole number (QuotaConfig).
_WHOLE: Mapping[str, tuple[int, str]] = {
    PRODUCE: (INT64_MAX, "a LONG"),
    FETCH: (INT64_MAX, "a LONG"),
    CONNECTION: (INT32_MAX, "an INT"),
}
_OF_CLIENTS = frozenset((PRODUCE, FETCH, REQUEST, MUTATION))
_OF_ADDRESSES = frozenset((CONNECTION,))
_FRACTION_MAX = 1e-6

Entity = tuple[tuple[str, str | None], ...]
"""The parts of an entity, type and name, in the order in which Kafka returns them."""
Quotas = Mapping[str, float]


def entity_of(
    parts: Iterable[tuple[str, str | None]], pace: Pace = unpaced, capacity: int = 16
) -> Entity:
    """Return the entity of these parts; the last name of a type counts."""
    by_type = dict(pace(parts))
    kinds = hash_order(by_type, capacity=capacity, pace=pace)
    return tuple((kind, by_type[kind]) for kind in pace(kinds))


def named_entity(parts: Sequence[tuple[str, str | None]], pace: Pace = unpaced) -> Entity:
    """Return the entity that a request names, in the order of AlterClientQuotasRequest's map."""
    return entity_of(parts, pace, capacity=len(parts))


def entity_hash(entity: Entity, pace: Pace = unpaced) -> int:
    """Return the value of ClientQuotaEntity.hashCode(), except for bits past the 32nd."""
    return 31 + sum(
        string_hash(kind) ^ (0 if name is None else string_hash(name))
        for kind, name in pace(entity)
    )


def describe(entity: Entity) -> str:
    """Return an entity as Kafka prints it (ClientQuotaEntity.toString)."""
    parts = (f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def check_entity(entity: Entity) -> None:
    """Raise Refusal for parts that do not exist or do not fit together."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if len(entity) > 1 and IP in dict(entity):
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )


def check_quota(entity: Entity, key: str, value: float) -> None:
    """Raise Refusal for a quota that an entity cannot have, or for a wrong value."""
    known = _OF_ADDRESSES if IP in dict(entity) else _OF_CLIENTS
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    # Kafka accepts NaN, and then holds back the clients of that quota for ever.
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in _WHOLE:
        most, what = _WHOLE[key]
        if value > most:
            raise _invalid(f"Proposed value for {key} is too large for {what}.")
        if value % 1.0 > _FRACTION_MAX:
            raise _invalid(f"{key} cannot be a fractional value.")


def invalid_address(host: str | None) -> Refusal:
    """Return the refusal of an invalid address."""
    return _invalid(f"{host} is not a valid IP or resolvable host.")


def write_entity(entity: Entity) -> str:
    """Return an entity as text for the metadata."""
    return json.dumps(dict(entity), sort_keys=True)


def read_entity(text: str) -> Entity:
    """Return the entity that write_entity wrote."""
    return entity_of(json.loads(text).items())


def write_quotas(quotas: Quotas) -> str | None:
    """Return quotas as text for the metadata; None for no quotas."""
    return json.dumps(dict(quotas), sort_keys=True) if quotas else None


def read_quotas(text: str) -> Quotas:
    """Return the quotas that write_quotas wrote."""
    return {key: float(value) for key, value in json.loads(text).items()}


def ordered(quotas: Quotas) -> Sequence[tuple[str, float]]:
    """Return quotas in the order in which Kafka returns them."""
    return [(key, quotas[key]) for key in hash_order(quotas)]


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
