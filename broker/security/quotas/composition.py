"""The quotas in the metadata, and their application to clients and addresses.

Without quotas, `clients` and `addresses` are None, and nothing is counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.errors import EXPLAINED, Explained, Refusal, as_value
from odradek.broker.hosts.names import HostNames, resolve_all
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.store import MetadataStore, RowChanges, Rows, SecurityKind
from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import hash_places, place_order
from odradek.broker.security.quotas.entities import (
    IP,
    Entity,
    Quotas,
    check_entity,
    check_quota,
    describe,
    entity_hash,
    entity_of,
    invalid_address,
    read_entity,
    read_quotas,
    write_entity,
    write_quotas,
)
from odradek.config.quota import QuotaConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

if TYPE_CHECKING:
    from odradek.broker.security.quotas.addresses import AddressRates
    from odradek.broker.security.quotas.clients import ClientQuotas

logger = logging.getLogger(__name__)

Alteration = tuple[Entity, Sequence[tuple[str, float | None]]]
"""An entity as a request names it, and quotas to set; None removes one."""


class QuotaTable:
    """All quotas; the event loop owns it."""

    def __init__(
        self, configs: Configs, stored: Rows, store: MetadataStore, changes: Changes
    ) -> None:
        """Load the quotas of the store, and put them in force."""
        self._configs, self._store, self._changes = configs, store, changes
        self.entries: Mapping[Entity, Quotas] = {
            read_entity(name): read_quotas(value) for name, value in stored.items()
        }
        # The number of places of the map that Kafka creates at every change.
        self._places = hash_places(len(self.entries), capacity=0)
        self.clients: ClientQuotas | None = None
        self.addresses: AddressRates | None = None
        # The addresses of hosts that have quotas.
        self._names = HostNames()
        self._hosts = resolve_all(_hosts_of(self.entries))
        if self.entries:
            self._put_in_force()

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> dict[Entity, Explained | None]:
        """Change quotas, each entity on its own; None stands for a durable change.

        The entities of the outcomes are those named first, of equal ones.
        """
        # Outside the change, so that other changes do not wait: this may ask the network.
        hosts = _hosts_of(entity for entity, _ in alterations)
        found: Mapping[str, Sequence[str]] = {}
        if hosts:
            found = await self._names.resolve(hosts)
        return await self._changes.run(lambda: self._alter(alterations, validate_only, found))

    async def _alter(
        self,
        alterations: Sequence[Alteration],
        validate_only: bool,
        hosts: Mapping[str, Sequence[str]],
    ) -> dict[Entity, Explained | None]:
        outcomes: dict[Entity, Explained | None] = {}
        changed: dict[Entity, Quotas] = {}
        names: dict[Entity, Entity] = {}
        for named, operations in paced(alterations):
            entity = entity_of(named, paced)
            names.setdefault(entity, named)
            keys = {key for key, _ in paced(operations)}
            if entity in outcomes or len(keys) < len(operations):
                # The first alteration of the entity stands, as in ClientQuotaControlManager.
                message = f"Ignoring duplicate entity {describe(named)}"
                outcomes[entity] = Refusal(ErrorCode.INVALID_REQUEST, message)
                continue
            try:
                check_entity(named)
                quotas = self._changed(entity, dict(operations), hosts)
            except EXPLAINED as error:
                outcomes[entity] = as_value(error)
                continue
            outcomes[entity] = None
            if quotas != self.entries.get(entity, {}):
                changed[entity] = quotas
        if changed and not validate_only:
            outcomes |= await self._store_and_apply(changed, hosts)
        return {names[entity]: outcome for entity, outcome in paced(outcomes.items())}

    async def _store_and_apply(
        self, changed: Mapping[Entity, Quotas], hosts: Mapping[str, Sequence[str]]
    ) -> dict[Entity, Explained | None]:
        rows = {
            write_entity(entity): write_quotas(quotas)
            for entity, quotas in paced(changed.items())
        }
        try:
            await self._store.change_security(SecurityKind.QUOTA, rows)
        except EXPLAINED as error:
            return dict.fromkeys(changed, error)
        self._take_in(changed, hosts)
        for entity, quotas in paced(changed.items()):
            logger.info("changed quotas entity=%s quotas=%s", dict(entity), dict(quotas))
        return dict.fromkeys(changed)

    async def follow(self, rows: RowChanges) -> None:
        """Put quotas in force as they were stored, or removed."""
        changed = {
            read_entity(name): read_quotas(value) if value is not None else {}
            for name, value in rows.items()
        }
        hosts = _hosts_of(changed)
        self._take_in(changed, await self._names.resolve(hosts) if hosts else {})

    def _take_in(
        self, changed: Mapping[Entity, Quotas], hosts: Mapping[str, Sequence[str]]
    ) -> None:
        self._take(changed)
        hosts = {**self._hosts, **hosts}
        self._hosts = {host: hosts[host] for host in _hosts_of(self.entries)}
        self._put_in_force()

    def in_order(self) -> list[tuple[Entity, Quotas]]:
        """Return all quotas in the order in which Kafka returns them.

        Its map (ClientQuotasDelta.apply) is a HashMap with an initial capacity for the entities
        before the change: it takes these first, in their order, and then the new ones.
        """
        entities = place_order(self.entries, entity_hash, self._places)
        return [(entity, self.entries[entity]) for entity in entities]

    def _take(self, changed: Mapping[Entity, Quotas]) -> None:
        new: HashMapKeys[Entity] = HashMapKeys(entity_hash)
        for entity in changed:
            new.compute(entity)
        before = self.entries
        count = sum(1 for one in {**before, **changed}.items() if one[1])
        places = hash_places(count, capacity=len(before))
        if places < self._places:
            before = dict(self.in_order())
        entries = {**before, **{entity: changed[entity] for entity in new}}
        self.entries = {entity: quotas for entity, quotas in entries.items() if quotas}
        self._places = places

    def _changed(
        self,
        entity: Entity,
        operations: Mapping[str, float | None],
        hosts: Mapping[str, Sequence[str]],
    ) -> Quotas:
        """Return an entity's quotas after a change. Raises Refusal."""
        host = dict(entity).get(IP)
        if host is not None and not hosts[host]:
            raise invalid_address(host)
        quotas = dict(self.entries.get(entity, {}))
        for key, value in operations.items():
            if value is None:
                quotas.pop(key, None)
            else:
                check_quota(entity, key, value)
                quotas[key] = value
        return quotas

    def _put_in_force(self) -> None:
        config = self._configs.of(QuotaConfig)
        of_clients = {
            entity: quotas for entity, quotas in self.entries.items() if IP not in dict(entity)
        }
        if not of_clients:
            self.clients = None
        else:
            from odradek.broker.security.quotas.clients import ClientQuotas

            self.clients = self.clients or ClientQuotas(config, self._sensors_max, _now_ms)
            self.clients.put_in_force(of_clients)
        if len(of_clients) == len(self.entries):
            self.addresses = None
        else:
            from odradek.broker.security.quotas.addresses import AddressRates

            self.addresses = self.addresses or AddressRates(config, self._sensors_max, _now_ms)
            self.addresses.put_in_force(self.entries, self._hosts)

    def _sensors_max(self) -> int:
        return self._configs.of(QuotaConfig).odradek_quota_sensors_max


def _hosts_of(entities: Iterable[Entity]) -> set[str]:
    return {name for entity in entities for kind, name in entity if kind == IP and name}


def _now_ms() -> int:
    """Return a time that does not depend on the setting of the machine's clock."""
    return time.monotonic_ns() // 1_000_000
