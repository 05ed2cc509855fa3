"""Changes of settings that clients request: checked here, carried out by Configs and Topics.

AlterConfigs replaces all settings of a resource; IncrementalAlterConfigs changes single ones
(KIP-339). The checks, their order and their messages are those of Kafka's ConfigAdminManager and
ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek.broker.errors import EXPLAINED, Explained, Refusal, as_value
from odradek.broker.metadata.configs import Alteration, Configs
from odradek.broker.metadata.loggers import check_level, set_levels
from odradek.broker.metadata.resource_configs import KINDS
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.orders.java import hash_order
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.registry import Topics
from odradek.config.effective import BROKER_OPTION, TOPIC_OPTION
from odradek.config.option import Option
from odradek.config.values import Kind
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

SET, DELETE, APPEND, SUBTRACT = range(4)

_WORDS = ("SET", "DELETE", "APPEND", "SUBTRACT")
_OPTIONS: Mapping[int, Mapping[str, Option]] = {
    ResourceType.TOPIC: TOPIC_OPTION,
    ResourceType.BROKER: BROKER_OPTION,
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: SET a setting, DELETE it, or APPEND to or SUBTRACT from a list."""

    name: str
    kind: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceEdits:
    """Edits of a resource's settings; `replaces_all` removes the settings not named."""

    resource_type: int
    resource_name: str
    operations: Sequence[Edit]
    replaces_all: bool = False

    @property
    def key(self) -> tuple[int, str]:
        """The type and the name of the resource."""
        return self.resource_type, self.resource_name


async def carry_out(
    requested: Sequence[ResourceEdits],
    configs: Configs,
    topics: Topics,
    refusal: Callable[[int, str], ErrorCode | None],
    *,
    validate_only: bool,
) -> list[Explained | None]:
    """Edit resources, each as a whole or not at all; return the error of each, or None.

    `refusal` takes the type and name of a resource, and returns the error code if the client may
    not change it.
    """
    outcomes: dict[tuple[int, str], Explained | None] = {}
    topic_changes: dict[str, Alteration] = {}
    other_changes: dict[Resource, Alteration] = {}
    times = Counter(edits.key for edits in paced(requested))
    for edits in paced(requested):
        try:
            if times[edits.key] > 1:
                message = "Each resource must appear at most once."
                raise Refusal(ErrorCode.INVALID_REQUEST, message)
            _check(edits, configs)
            code = refusal(*edits.key)
            if code is not None:
                raise Refusal(code)
        except EXPLAINED as error:
            outcomes[edits.key] = as_value(error)
    accepted = [edits for edits in paced(requested) if edits.key not in outcomes]
    failure = _failure(accepted)
    for edits in paced(accepted):
        outcomes[edits.key] = None
        try:
            if edits.resource_type == ResourceType.BROKER_LOGGER:
                _set_levels(edits, configs.node_id, validate_only)
                continue
            if failure is not None:
                outcomes[edits.key] = failure
                continue
            for operation in paced(_in_order(edits)):
                _check_list(operation, edits.resource_type)
            if edits.resource_type == ResourceType.TOPIC:
                _check_topic(edits)
                topic_changes[edits.resource_name] = alteration(edits)
            elif edits.resource_type in KINDS:
                resource = Resource(ResourceType(edits.resource_type), edits.resource_name)
                other_changes[resource] = alteration(edits)
            else:
                await configs.alter(
                    edits.resource_name, alteration(edits), validate_only=validate_only
                )
        except EXPLAINED as error:
            outcomes[edits.key] = as_value(error)
    if other_changes:
        changed = await configs.resources.alter(other_changes, validate_only=validate_only)
        for one, outcome in paced(changed.items()):
            outcomes[one.type, one.name] = outcome
    if topic_changes:
        done = await topics.alter_configs(topic_changes, validate_only=validate_only)
        for name, outcome in paced(done.items()):
            outcomes[ResourceType.TOPIC, name] = outcome
    return [outcomes[edits.key] for edits in paced(requested)]


def alteration(edits: ResourceEdits) -> Alteration:
    """Return a function that computes a resource's new settings from its present ones."""

    def alter(present: Mapping[str, str]) -> Mapping[str, str]:
        altered = {} if edits.replaces_all else dict(present)
        for operation in paced(edits.operations):
            if operation.kind == DELETE:
                altered.pop(operation.name, None)
                continue
            assert operation.value is not None, "_check has refused null values"
            if operation.kind == SET:
                altered[operation.name] = operation.value
            else:
                altered[operation.name] = _change_list(operation, edits.resource_type, present)
        return altered

    return alter


def _check(edits: ResourceEdits, configs: Configs) -> None:
    """Refuse edits that are wrong regardless of the present settings, in Kafka's order."""
    if len({operation.name for operation in paced(edits.operations)}) < len(edits.operations):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [
        one.name for one in paced(edits.operations) if one.kind != DELETE and one.value is None
    ]
    if missing:
        message = f"Null value not supported for : {', '.join(missing)}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    # AlterConfigs, the older API, does not know loggers.
    is_known = edits.resource_type in set(ResourceType)
    if not is_known or (edits.replaces_all and edits.resource_type == ResourceType.BROKER_LOGGER):
        message = f"Unknown resource type {edits.resource_type}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if edits.resource_type == ResourceType.BROKER:
        configs.check_name(edits.resource_name)
        unknown = _unknown_operation(edits)
        if unknown is not None:
            raise Refusal(ErrorCode.INVALID_REQUEST, unknown)
        for operation in paced(edits.operations):
            _check_list(operation, edits.resource_type)


def _failure(requested: Iterable[ResourceEdits]) -> Refusal | None:
    """Return the error that an unknown operation causes, or None.

    Kafka's controller then fails for all resources but loggers, and answers with the code
    alone. A resource that is refused before, for a list operation on an option that is not a list,
    does not cause this.
    """
    for edits in paced(requested):
        unknown = _unknown_operation(edits)
        if unknown is None or edits.resource_type == ResourceType.BROKER_LOGGER:
            continue
        try:
            for operation in paced(_in_order(edits)):
                if not SET <= operation.kind <= SUBTRACT:
                    return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, unknown)
                _check_list(operation, edits.resource_type)
        except Refusal:
            continue
    return None


def _in_order(edits: ResourceEdits) -> list[Edit]:
    """Return the edits, each of another setting, in the order of the controller's map."""
    by_name = {operation.name: operation for operation in paced(edits.operations)}
    return [by_name[name] for name in paced(hash_order(by_name, pace=paced))]


def _unknown_operation(edits: ResourceEdits) -> str | None:
    kinds = (operation.kind for operation in paced(edits.operations))
    unknown = next((kind for kind in kinds if not SET <= kind <= SUBTRACT), None)
    return None if unknown is None else f"Unknown operations type {unknown}"


def _check_topic(edits: ResourceEdits) -> None:
    if not edits.resource_name:
        message = "Default topic resources are not allowed."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    problem = topic_names.problem(edits.resource_name)
    if problem:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _set_levels(edits: ResourceEdits, node_id: int, validate_only: bool) -> None:
    try:
        is_ours = int(edits.resource_name) == node_id
    except ValueError:
        message = f"Node id must be an integer, but it is: {edits.resource_name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message) from None
    if not is_ours:
        message = f"Unexpected node id. Expected {node_id}, but received {edits.resource_name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    changes = []
    for one in paced(edits.operations):
        if not SET <= one.kind <= SUBTRACT:
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown operations type {one.kind}")
        if one.kind in (APPEND, SUBTRACT):
            message = f"{_WORDS[one.kind]} operation is not allowed for the BROKER_LOGGER resource"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        level = one.value if one.kind == SET else None
        check_level(one.name, level)
        changes.append((one.name, level))
    if not validate_only:
        set_levels(changes)


def _change_list(operation: Edit, resource_type: int, present: Mapping[str, str]) -> str:
    option = _list_option(operation, resource_type)
    # A list that is not set starts from the declared default, not from the broker's setting.
    text = present.get(operation.name, option.default_text or "")
    items = [item for item in text.split(",") if item]
    assert operation.value is not None
    named = operation.value.split(",")
    if operation.kind == APPEND:
        present_items = set(items)
        items += [item for item in dict.fromkeys(named) if item not in present_items]
        return ",".join(items)
    left = Counter(named)  # each mention of an item removes it once
    kept = []
    for item in items:
        if left[item]:
            left[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


def _check_list(operation: Edit, resource_type: int) -> None:
    """Refuse an operation on a list for an option that is none."""
    if operation.kind in (APPEND, SUBTRACT):
        _list_option(operation, resource_type)


def _list_option(operation: Edit, resource_type: int) -> Option:
    """Return the option that a list operation changes; refuse one that is not a list."""
    # Kafka's controller knows no lists among the settings of groups and of client metrics.
    option = _OPTIONS.get(resource_type, {}).get(operation.name)
    if option is not None and option.kind is Kind.LIST:
        return option
    word, name = _WORDS[operation.kind], operation.name
    if resource_type != ResourceType.BROKER:
        message = f"Can't {word} to key {name} because its type is not LIST."
    elif option is None:
        message = f"Unknown config name: {name}"
    else:
        message = f"Config value {word.lower()} is not allowed for config key: {name}"
    raise Refusal(ErrorCode.INVALID_CONFIG, message)
