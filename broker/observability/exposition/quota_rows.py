"""The values of quotas for /metrics: rates of the clients that have one, and of connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.broker.observability.observed import Observed
    from odradek.broker.security.quotas.clients import ClientQuotas

# The rows that are shown for each kind of quota, those that were used last: clients choose their
# client ids freely.
SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A client with a quota: a user, a client id, or both; the missing one is ""."""

    user: str
    client_id: str
    rate: float
    throttle_ms: float
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class QuotaRows:
    """All values of quotas and connections."""

    clients: Mapping[str, Sequence[QuotaRow]]  # by the name of the quota
    addresses: Sequence[tuple[str, float]]  # connections a second
    accepted: Mapping[str, int]  # connections, by listener
    refused: Mapping[str, int]
    evictions: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)  # the number of quotas, by name


def read_quotas(broker: Observed) -> QuotaRows:
    """Read the values of quotas and connections."""
    quotas = broker.security.quotas
    listeners = dict.fromkeys((one.name for one in broker.server.listeners), 0)
    set_by_name: dict[str, int] = {}
    for of_entity in quotas.entries.values():
        for name in of_entity:
            set_by_name[name] = set_by_name.get(name, 0) + 1
    addresses: list[tuple[str, float]] = []
    evictions = 0
    if quotas.addresses is not None:
        now_ms = quotas.addresses.now_ms()
        sensors = quotas.addresses.sensors
        sensors.expire(now_ms)
        addresses = [(key, one.rate.measure(now_ms)) for key, one in sensors.latest(SHOWN_MAX)]
        evictions += sensors.evictions
    clients: dict[str, list[QuotaRow]] = {}
    if quotas.clients is not None:
        clients = _clients(quotas.clients)
        evictions += sum(one.sensors.evictions for one in quotas.clients.by_kind.values())
    return QuotaRows(
        clients,
        addresses,
        listeners | dict(broker.server.accepted),
        listeners | dict(broker.server.refused),
        evictions,
        set_by_name,
    )


def _clients(quotas: ClientQuotas) -> dict[str, list[QuotaRow]]:
    now_ms = quotas.now_ms()
    rows: dict[str, list[QuotaRow]] = {}
    for name, quota in quotas.by_kind.items():
        quota.sensors.expire(now_ms)
        rows[name] = [
            QuotaRow(
                user or "",
                client_id or "",
                sensor.rate.measure(now_ms),
                sensor.throttled.measure(now_ms),
                sensor.bucket.measure(sensor.limit, now_ms) if sensor.bucket else 0.0,
            )
            for (user, client_id), sensor in quota.sensors.latest(SHOWN_MAX)
        ]
    return rows
