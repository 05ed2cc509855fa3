"""The security parts of a broker, each created when the settings ask for it.

A broker without such settings imports and holds nothing but this module.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from odradek.broker.counters.metrics import Metrics
from odradek.broker.ids import random_id
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.store import (
    Metadata,
    MetadataStore,
    RowChanges,
    SecurityKind,
)
from odradek.broker.security.authorization import Authorizer
from odradek.broker.security.credentials import NoTokens, TokenCredentials
from odradek.broker.security.quotas.composition import QuotaTable
from odradek.config.acl import AclConfig
from odradek.config.inter_broker import InterBrokerConfig, inter_broker_listener
from odradek.config.oauth import OAuthConfig
from odradek.config.sasl import OAUTHBEARER, SaslConfig
from odradek.config.scram_users import parse_scram_users
from odradek.config.tls import PROTOCOLS as TLS
from odradek.config.tokens import TokenConfig

if TYPE_CHECKING:
    from odradek.broker.security.acl_changes import AclChanges
    from odradek.broker.security.audit import AuditFile
    from odradek.broker.security.oauth.keys import Keys
    from odradek.broker.security.sasl.listener import SaslListener
    from odradek.broker.security.scram_users import ScramUsers
    from odradek.broker.security.tls.listeners import Tls
    from odradek.broker.security.tokens import DelegationTokens


SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class Security:
    """Authorizer, credentials, tokens and quotas; the event loop owns it."""

    def __init__(
        self,
        configs: Configs,
        metadata: Metadata,
        store: MetadataStore,
        changes: Changes,
        metrics: Metrics,
        now_ms: Callable[[], int],
    ) -> None:
        """Load the rows of the store. Raises ConfigError or MetadataError."""
        self.configs, self.store, self.changes = configs, store, changes
        self.metrics, self.now_ms = metrics, now_ms
        # None: every client may do everything, and there are no ACLs to change.
        self.authorizer: Authorizer | None = None
        self._audit_file: AuditFile | None = None
        self.acls = self._load_acls(metadata)
        if self.acls is not None:
            self.authorizer = self.acls.authorizer
        self.token_credentials: TokenCredentials = NoTokens()
        self.tokens = self._load_tokens(metadata)
        if self.tokens is not None:
            self.token_credentials = self.tokens
        self._scram_rows = metadata.security.get(SecurityKind.SCRAM_CREDENTIAL, {})
        self._sasl: dict[str, SaslListener] = {}
        self._keys: dict[OAuthConfig, Keys] = {}
        self._preparing: asyncio.Task[None] | None = None
        quotas = metadata.security.get(SecurityKind.QUOTA, {})
        self.quotas = QuotaTable(configs, quotas, store, changes)
        # None: no listener speaks TLS.
        self.tls: Tls | None = self._make_tls()

    def start(self) -> None:
        """Start the tasks that run until close(). Raises MetadataError."""
        if self._scram_rows:
            _ = self.scram_users  # an unreadable row is reported now, not at a login
        if self.tokens is not None:
            self._preparing = start_task("prepare tokens", self.tokens.prepare())
        for one in self.configs.broker.bound_endpoints:
            if one.protocol in SASL and OAUTHBEARER in self.sasl_listener(one.name).enabled:
                self.oauth_keys(one.name)

    async def create_users(self) -> None:
        """Create the missing users of the settings. Raises MetadataError."""
        wanted = self.configs.of(SaslConfig).odradek_scram_users
        if wanted:
            from odradek.broker.security.initial_users import add_initial_users

            users = parse_scram_users(wanted)
            await add_initial_users(users, self.scram_users, self.changes)

    @cached_property
    def scram_users(self) -> ScramUsers:
        """The users of SCRAM."""
        from odradek.broker.security.scram_users import ScramUsers

        return ScramUsers(self._scram_rows, self.store)

    async def follow(self, kind: SecurityKind, rows: RowChanges) -> None:
        """Take over rows as another broker has stored, or removed, them."""
        if kind is SecurityKind.ACL and self.acls is not None:
            self.acls.follow(rows)
        elif kind is SecurityKind.DELEGATION_TOKEN and self.tokens is not None:
            self.tokens.follow(rows)
        elif kind is SecurityKind.QUOTA:
            await self.quotas.follow(rows)
        elif kind is SecurityKind.SCRAM_CREDENTIAL:
            self.scram_users.follow(rows)

    def sasl_listener(self, name: str) -> SaslListener:
        """Return the settings and mechanisms of a SASL listener."""
        found = self._sasl.get(name)
        if found is None:
            from odradek.broker.security.sasl.listener import SaslListener

            found = self._sasl[name] = SaslListener(self, name)
        return found

    def oauth_keys(self, listener: str) -> Keys:
        """Return the keys with which a listener checks tokens of OAUTHBEARER."""
        config = self.configs.of_listener(OAuthConfig, listener, OAUTHBEARER.lower())
        found = self._keys.get(config)
        if found is None:
            from odradek.broker.security.oauth.keys import Keys

            url = config.sasl_oauthbearer_jwks_endpoint_url
            assert url, "config/oauth.py requires it of each listener"
            found = self._keys[config] = Keys(url, config)
            found.start()
        return found

    def close(self) -> None:
        """Stop the tasks in the background, and close the open files."""
        if self._preparing is not None:
            self._preparing.cancel()
        for keys in self._keys.values():
            keys.close()
        if self._audit_file is not None:
            self._audit_file.close()

    def problems(self) -> Iterator[str]:
        """Iterate over the problems that an operator should look at."""
        if self.tls is not None:
            yield from self.tls.problems()
        for keys in self._keys.values():
            if keys.problem is not None:
                yield f"could not fetch the keys of tokens from {keys.url}: {keys.problem}"

    def _make_tls(self) -> Tls | None:
        endpoints = self.configs.broker.bound_endpoints
        speakers = [(one.name, one.protocol) for one in endpoints if one.protocol in TLS]
        if not speakers:
            return None
        from odradek.broker.security.tls.listeners import Tls

        between_brokers = ""
        if self.store.is_shared:
            config = self.configs.of(InterBrokerConfig)
            between_brokers = inter_broker_listener(
                config, self.configs.broker.advertised_endpoints
            ).name
        tls = Tls(speakers, self.configs.layers, self.metrics, self.now_ms, between_brokers)
        self.configs.checks.append(tls.check)
        self.configs.on_changed.append(lambda _: tls.take_up())
        return tls

    def _load_acls(self, metadata: Metadata) -> AclChanges | None:
        config = self.configs.of(AclConfig)
        if not config.has_authorizer:
            return None
        from odradek.broker.security.acl_changes import AclChanges

        stored = metadata.security.get(SecurityKind.ACL, {})
        if config.odradek_audit_log:
            from odradek.broker.security.audit import AuditFile

            self._audit_file = AuditFile(config.odradek_audit_log)
        counts = self.metrics.authorizations
        return AclChanges(stored, config, self.store, self.changes, counts)

    def _load_tokens(self, metadata: Metadata) -> DelegationTokens | None:
        config = self.configs.of(TokenConfig)
        if not config.delegation_token_secret_key:
            return None
        from odradek.broker.security.tokens import DelegationTokens

        source = random.SystemRandom()
        return DelegationTokens(
            metadata.security.get(SecurityKind.DELEGATION_TOKEN, {}),
            config,
            self.store,
            self.changes,
            self.now_ms,
            lambda: random_id(source),
        )
