"""Settings that clients may change while the broker runs: for one broker, or for all.

One rule covers an option and a listener's own setting of it: an option that needs a restart
also needs one as listener.name.<listener>.<option>. Clients are not trusted with the files and
the network of the broker's machine, so this is stricter than Kafka 4.3.1 in two ways:

- Kafka accepts any option under a listener's prefix, and the listener makes no use of it before
  a restart. Here a listener applies its settings at once: a client could make it trust another
  JWKS address, or map any certificate to a super user (ssl.principal.mapping.rules).
- Kafka lets clients set config.providers, and resolves ${file:path:key} in their settings. The
  error for a value of the wrong type then quotes a line of any file that the broker can read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.config.effective import SETTABLE_OPTION
from odradek.config.errors import ConfigError, raise_any
from odradek.config.per_listener import base_name, split_name
from odradek.config.providers import has_reference, is_of_providers
from odradek.config.tls import RECONFIGURABLE as OF_LISTENERS_ONLY

# The options that clients may set for the listeners of all brokers (DynamicBrokerConfig).
_CLUSTER_WIDE_OF_LISTENERS = {
    "max.connections", "max.connection.creation.rate", "num.network.threads",
}  # fmt: skip


def check_dynamic(values: Mapping[str, str], *, per_broker: bool) -> None:
    """Check settings that clients make for a running broker, or for all brokers.

    Raise ConfigError for settings that need a restart, settings that belong to one broker, and
    bad values (Kafka's DynamicBrokerConfig.validateConfigs). resolve_broker checks that all
    settings then fit together.
    """
    for reason, names in _not_dynamic(values, per_broker):
        raise ConfigError(f"{reason}: [{', '.join(names)}]")
    problems: list[str] = []
    for name, text in values.items():
        option = SETTABLE_OPTION.get(base_name(name))
        try:
            if option is not None:
                option.read(text)
        except ConfigError as error:
            problems += error.problems
    raise_any(problems)


def drop_not_dynamic(
    values: Mapping[str, str], *, per_broker: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the stored settings that clients may make, and the reasons to ignore the others.

    Kafka also ignores them at the start (DynamicBrokerConfig.fromPersistentProps): an older
    broker may have stored settings that this one refuses.
    """
    refused = list(_not_dynamic(values, per_broker))
    ignored = {name for _, names in refused for name in names}
    kept = {name: text for name, text in values.items() if name not in ignored}
    return kept, [f"{reason}: [{', '.join(names)}]" for reason, names in refused]


def _not_dynamic(values: Mapping[str, str], per_broker: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield each reason that forbids some of the settings, with the names of these settings."""
    options = {name: SETTABLE_OPTION.get(base_name(name)) for name in values}
    fixed = [
        name
        for name, option in options.items()
        if is_of_providers(base_name(name)) or (option is not None and option.read_only)
    ]
    if fixed:
        yield "Cannot update these configs dynamically", fixed
    bare = [name for name in values if name in OF_LISTENERS_ONLY]
    if bare:
        yield (
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix"
        ), bare
    references = [name for name, text in values.items() if has_reference(text)]
    if references:
        yield (
            "References to values that are kept elsewhere work only in the settings that the "
            "broker is started with, set the value itself"
        ), references
    single = [
        name
        for name, option in options.items()
        if _is_of_one_broker(name) or (option is not None and option.dynamic == "per-broker")
    ]
    if single and not per_broker:
        yield (
            "Cannot update these configs at default cluster level, broker id must be specified"
        ), single


def _is_of_one_broker(name: str) -> bool:
    """Return whether a name is a listener's, and not one that all brokers share."""
    parts = split_name(name)
    if parts is None:
        return False
    return bool(parts.mechanism) or parts.option not in _CLUSTER_WIDE_OF_LISTENERS
