"""The broker's options outside of BrokerConfig, by the classes that code asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from odradek.config.acl import AclConfig, acl_problems
from odradek.config.catalog import CatalogConfig, catalog_problems
from odradek.config.connections import ConnectionConfig, connection_problems
from odradek.config.consumer import ConsumerConfig, consumer_problems
from odradek.config.http import HttpConfig, http_problems
from odradek.config.inter_broker import InterBrokerConfig
from odradek.config.kerberos import KerberosConfig, kerberos_problems
from odradek.config.oauth import OAuthConfig, oauth_problems
from odradek.config.object_store import ObjectStoreConfig, object_store_problems
from odradek.config.otlp import OtlpConfig, otlp_problems
from odradek.config.providers import ProvidersConfig
from odradek.config.quota import QuotaConfig, quota_problems
from odradek.config.sasl import SaslConfig, sasl_problems
from odradek.config.share import ShareConfig, share_problems
from odradek.config.streams import StreamsConfig, streams_problems
from odradek.config.tls import TlsConfig, tls_problems
from odradek.config.tokens import TokenConfig, token_problems
from odradek.config.workers import WorkersConfig

# Yields the contradictions in a config, each with the names of its options.
Problems = Callable[[Any], Iterator[tuple[str, Sequence[str]]]]

# Resolved when they are asked for (Configs.of).
APART: Mapping[type, Problems] = {
    ConsumerConfig: consumer_problems,
    ConnectionConfig: connection_problems,
    QuotaConfig: quota_problems,
    ShareConfig: share_problems,
    StreamsConfig: streams_problems,
    HttpConfig: http_problems,
    AclConfig: acl_problems,
    SaslConfig: sasl_problems,
    OAuthConfig: oauth_problems,
    KerberosConfig: kerberos_problems,
    TlsConfig: tls_problems,
    TokenConfig: token_problems,
    ProvidersConfig: lambda _: iter(()),
    OtlpConfig: otlp_problems,
    CatalogConfig: catalog_problems,
    WorkersConfig: lambda _: iter(()),
    InterBrokerConfig: lambda _: iter(()),
    ObjectStoreConfig: object_store_problems,
}
# The classes whose options a listener may set for itself (Configs.of_listener).
OF_LISTENERS: tuple[type, ...] = (
    SaslConfig,
    OAuthConfig,
    KerberosConfig,
    TlsConfig,
    ConnectionConfig,
)
