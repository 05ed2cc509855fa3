"""Reads and changes settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from odradek.cli.client import REQUEST_TIMEOUT_S, Admin
from odradek.cli.refusals import Act, CommandError, Denied
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry, ConfigResource

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
    "GROUP_CONFIG": "group",
    "UNKNOWN_CONFIG": "unknown",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting from a broker's answer; a secret has no value."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, str], ...]

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class Changes:
    """Settings to set, and settings to delete."""

    values: Mapping[str, str]
    deleted: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.deleted)

    def document(self) -> dict[str, Any]:
        """Return the changes for JSON."""
        return {"set": dict(self.values), "deleted": list(self.deleted)}


def describe_settings(
    admin: Admin, kind: str, names: Iterable[str], *, omits_denied: bool = False
) -> dict[str, dict[str, Setting]]:
    """Return the settings of resources of a kind (topic, broker, group) by name.

    `omits_denied` omits resources that the client may not read, else CommandError is raised.
    """
    resources = {name: _resource(kind, name) for name in names}
    if not resources:
        return {}
    futures = admin.client.describe_configs(
        list(resources.values()), request_timeout=REQUEST_TIMEOUT_S
    )
    found: dict[str, dict[str, Setting]] = {}
    for name, resource in resources.items():
        act = Act(f"read the settings of {kind} {name}", _right("DESCRIBE_CONFIGS", kind, name))
        try:
            entries = cast("dict[str, ConfigEntry]", admin.wait(futures[resource], act))
        except Denied:
            if omits_denied:
                continue
            raise
        found[name] = {key: _setting(entry) for key, entry in sorted(entries.items())}
    return found


def alter_settings(admin: Admin, kind: str, name: str, changes: Changes) -> None:
    """Change settings of a resource, all of them or none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    both = [key for key in changes.values if key in changes.deleted]
    if both:
        raise CommandError(f"{both[0]} can be set or deleted, not both")
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.values.items()
    ] + [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        for key in changes.deleted
    ]
    resource = _resource(kind, name, entries)
    futures = admin.client.incremental_alter_configs(
        [resource], request_timeout=REQUEST_TIMEOUT_S
    )
    act = Act(f"change the settings of {kind} {name}", _right("ALTER_CONFIGS", kind, name))
    admin.wait(futures[resource], act)


def source_text(source: str) -> str:
    """Return the name of a setting's source, for a person."""
    return _SOURCES.get(source, source)


def setting_json(setting: Setting) -> dict[str, Any]:
    """Return a setting for JSON."""
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "is_sensitive": setting.is_sensitive,
        "is_read_only": setting.is_read_only,
        "synonyms": [
            {"name": name, "value": value, "source": source}
            for name, value, source in setting.synonyms
        ],
    }


def _resource(
    kind: str, name: str, entries: list[ConfigEntry] | None = None
) -> ConfigResource:
    from confluent_kafka.admin import ConfigResource, ResourceType

    return ConfigResource(ResourceType[kind.upper()], name, incremental_configs=entries)


def _right(operation: str, kind: str, name: str) -> str:
    where = "the cluster" if kind == "broker" else f"{kind} {name}"
    return f"{operation} on {where}"


def _setting(entry: Any) -> Setting:
    synonyms = tuple(
        (one.name, one.value, _source(one.source)) for one in entry.synonyms.values()
    )
    return Setting(
        entry.name,
        entry.value,
        _source(entry.source),
        entry.is_sensitive,
        entry.is_read_only,
        synonyms,
    )


def _source(source: Any) -> str:
    from confluent_kafka.admin import ConfigSource

    return ConfigSource(source).name
