"""What the broker has one of for its security, made when the settings ask for it.

A broker without such settings imports and holds nothing but this.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.changes import Changes
from broker.configs import Configs
from broker.metadata import Metadata, MetadataStore, SecurityKind
from broker.metrics import Metrics
from broker.security.authorization import Authorizer
from broker.security.credentials import NoTokens, TokenCredentials
from broker.security.quotas.composition import QuotaTable


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
        quotas = metadata.security.get(SecurityKind.QUOTA, {})
        self.quotas = QuotaTable(configs, quotas, store, changes)
