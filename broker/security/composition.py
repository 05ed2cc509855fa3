"""What the broker has one of for its security, made when the settings ask for it.

A broker without such settings imports and holds nothing but this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.changes import Changes
from broker.configs import Configs
from broker.metadata import Metadata, MetadataStore, SecurityKind
from broker.metrics import Metrics
from broker.security.authorization import Authorizer
from broker.security.credentials import NoTokens, TokenCredentials
from config.acl import AclConfig

if TYPE_CHECKING:
    from broker.security.acl_changes import AclChanges


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
        """Take over what the store remembers. Raises ConfigError or MetadataError."""
        self.configs, self.store, self.changes = configs, store, changes
        self.metrics, self.now_ms = metrics, now_ms
        # None: everybody may do everything, and there are no ACLs to change.
        self.authorizer: Authorizer | None = None
        self.acls = self._load_acls(metadata)
        if self.acls is not None:
            self.authorizer = self.acls.authorizer
        self.token_credentials: TokenCredentials = NoTokens()

    def _load_acls(self, metadata: Metadata) -> AclChanges | None:
        config = self.configs.of(AclConfig)
        if not config.has_authorizer:
            return None
        from broker.security.acl_changes import AclChanges

        stored = metadata.security.get(SecurityKind.ACL, {})
        return AclChanges(stored, config, self.store, self.changes)
