"""The settings of topics and brokers: meanings, values, and the places that give them.

    GET /api/configs?topic=T
    GET /api/configs?broker=N
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.metadata.store import ResourceType
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, require
from odradek.broker.web.requests import Parameters, Problem
from odradek.config.resolution import Source
from odradek.dataclass import dataclass
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

_SOURCES: Mapping[int, str] = {
    Source.TOPIC: "set for the topic",
    Source.DYNAMIC_BROKER: "set for this broker",
    Source.DYNAMIC_DEFAULT_BROKER: "set for all brokers",
    Source.STATIC_BROKER: "from the broker's own settings",
    Source.DEFAULT: "the default",
}

_OWN = (Source.TOPIC, Source.DYNAMIC_BROKER)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force; its value is None when it is secret or not set."""

    name: str
    value: str | None
    # Whether it is set for the topic or the broker itself.
    is_own: bool
    is_read_only: bool
    is_secret: bool
    documentation: str
    source_text: str
    # The value that a topic would have without its own; None where there is none, and of brokers.
    otherwise: str | None

    def as_json(self) -> Mapping[str, object]:
        """Return it for an answer."""
        return {
            "name": self.name,
            "value": self.value,
            "is_own": self.is_own,
            "is_read_only": self.is_read_only,
            "is_secret": self.is_secret,
            "from": self.source_text,
            "otherwise": self.otherwise,
            "documentation": self.documentation,
        }


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return the settings of a topic or a broker, for an answer. Raises Problem."""
    topic, broker = parameters.text("topic"), parameters.text("broker")
    if topic is not None and broker is None:
        found = await describe(asker, actor, ResourceType.TOPIC, topic)
    elif broker is not None and topic is None:
        found = await describe(asker, actor, ResourceType.BROKER, broker)
    else:
        raise Problem(400, "name a topic or a broker: ?topic=… or ?broker=…")
    return {"settings": [one.as_json() for one in found.values()]}


async def describe(
    asker: Asker, actor: Actor, kind: ResourceType, name: str
) -> Mapping[str, Setting]:
    """Return the settings of a resource by name. Raises Problem."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=False, include_documentation=True
    )
    node_id = None
    if kind is ResourceType.BROKER:
        asker.require_right(actor, AclOperation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
        # A broker knows its own settings alone.
        node_id = next((one for one in asker.node_ids() if str(one) == name), None)
        if node_id is None:
            raise Problem(404, f"there is no broker {name[:20]}, or it is away")
    answer = await asker.ask(actor, request, DescribeConfigsResponse, node_id)
    result = answer.results[0]
    require(result.error_code, result.error_message)
    defaults = asker.topic_defaults() if kind is ResourceType.TOPIC else {}
    found = sorted(result.configs, key=lambda one: one.name)
    return {one.name: _setting(one, defaults.get(one.name)) for one in found}


def _setting(one: DescribeConfigsResourceResult, otherwise: str | None) -> Setting:
    return Setting(
        one.name,
        one.value,
        one.config_source in _OWN,
        one.read_only,
        one.is_sensitive,
        one.documentation or "",
        _SOURCES.get(one.config_source, "elsewhere"),
        otherwise,
    )
