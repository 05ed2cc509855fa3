"""What the broker has one of for its security, made when the settings ask for it.

A broker without such settings imports and holds nothing but this.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from broker.changes import Changes
from broker.configs import Configs
from broker.ids import random_id
from broker.metadata import Metadata, MetadataStore, SecurityKind
from broker.metrics import Metrics
from broker.security.authorization import Authorizer
from broker.security.credentials import NoTokens, TokenCredentials
from config.tokens import TokenConfig

if TYPE_CHECKING:
    from broker.security.sasl.listener import SaslListener
    from broker.security.scram_users import ScramUsers
    from broker.security.tokens import DelegationTokens


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
        """Take over what the store remembers. Raises ConfigError."""
        self.configs, self.store, self.changes = configs, store, changes
        self.metrics, self.now_ms = metrics, now_ms
        # None: everybody may do everything.
        self.authorizer: Authorizer | None = None
        self.token_credentials: TokenCredentials = NoTokens()
        self.tokens = self._load_tokens(metadata)
        if self.tokens is not None:
            self.token_credentials = self.tokens
        self._scram_rows = metadata.security.get(SecurityKind.SCRAM_CREDENTIAL, {})
        self._sasl: dict[str, SaslListener] = {}

    @cached_property
    def scram_users(self) -> ScramUsers:
        """The users of SCRAM."""
        from broker.security.scram_users import ScramUsers

        return ScramUsers(self._scram_rows, self.store)

    def sasl_listener(self, name: str) -> SaslListener:
        """Return what a SASL listener asks of its clients."""
        found = self._sasl.get(name)
        if found is None:
            from broker.security.sasl.listener import SaslListener

            found = self._sasl[name] = SaslListener(self, name)
        return found

    def _load_tokens(self, metadata: Metadata) -> DelegationTokens | None:
        config = self.configs.of(TokenConfig)
        if not config.delegation_token_secret_key:
            return None
        from broker.security.tokens import DelegationTokens

        source = random.SystemRandom()
        return DelegationTokens(
            metadata.security.get(SecurityKind.DELEGATION_TOKEN, {}),
            config,
            self.store,
            self.changes,
            self.now_ms,
            lambda: random_id(source),
        )
