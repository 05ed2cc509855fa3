"""Says in words what of a Kafka cluster has no place here, so that nobody misses it later."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from broker.adoption.groups import GroupCounts
from broker.adoption.image import ClusterImage
from broker.adoption.quotas import strange_quotas
from broker.adoption.survey import FoundDirectory
from broker.adoption.users import strange_users
from broker.metadata.store import ResourceType

_NAMES_SHOWN_MAX = 5
_OWNERS = {
    int(ResourceType.BROKER): "broker",
    int(ResourceType.BROKER_LOGGER): "the loggers of broker",
    int(ResourceType.CLIENT_METRICS): "client metrics",
    int(ResourceType.GROUP): "group",
}


def left_behind(image: ClusterImage, node_id: int) -> Iterator[tuple[str, str]]:
    """Yield what the metadata has that is not taken over: what it is, and what that means."""
    users = strange_users(image)
    if users:
        told = f"of {some(users)}; of a mechanism that is not known here"
        yield counted(len(users), "SCRAM credential"), told
    if image.tokens:
        yield counted(len(image.tokens), "delegation token"), "no client can use them"
    quotas = strange_quotas(image)
    if quotas:
        told = some(f"{key} of {_entity(entity)}" for entity, key in quotas)
        yield counted(len(quotas), "client quota"), f"{told}; of a kind that is not known here"
    ours = {(ResourceType.BROKER, ""), (ResourceType.BROKER, str(node_id))}
    for (kind, name), settings in sorted(image.configs.items()):
        if settings and kind != ResourceType.TOPIC and (kind, name) not in ours:
            owner = _OWNERS.get(kind, f"resource of type {kind}")
            yield f"settings of {owner} {name}", some(sorted(settings))
    levels = [f"{name}={level}" for name, level in sorted(image.features.items()) if level]
    if levels:
        yield (
            "feature levels",
            f"{', '.join(levels)}; the broker offers what it can, whatever they are",
        )


def left_of_groups(groups: GroupCounts) -> Iterator[tuple[str, str]]:
    """Yield the groups whose members' state has no use here."""
    kept = {
        "consumer": "their offsets are kept, their members join again",
        "share": "what their members have not acknowledged is not known here",
        "streams": "their offsets are kept, their tasks are assigned again",
    }
    for kind, meaning in kept.items():
        names = groups.by_type.get(kind, ())
        if names:
            yield counted(len(names), f"{kind} group"), f"{some(names)}; {meaning}"


def remarks(
    image: ClusterImage,
    taken: Container[bytes],
    directories: Sequence[FoundDirectory],
    torn_bytes: int,
) -> Iterator[str]:
    """Yield what else somebody should know before the data is served; `taken` has topic ids."""
    copies = [
        topic.name
        for topic in image.topics.values()
        if topic.topic_id in taken
        and any(len(one.replicas) > 1 for one in topic.partitions.values())
    ]
    if copies:
        yield (
            f"{some(sorted(copies))}: there were replicas on other brokers, and will be none. See "
            "that no other broker of the cluster still runs"
        )
    if len(image.controllers) > 1:
        yield (
            f"{len(image.controllers)} controllers kept this metadata together: if this copy is "
            "not that of the last one to lead, changes of the last moment may be missing"
        )
    if torn_bytes:
        yield (
            f"the metadata log ends with {torn_bytes} bytes that are no whole batch, as after a "
            "crash: they never counted"
        )
    for directory in directories:
        for name in directory.leftovers:
            yield f"{directory.path / name} was not finished with by Kafka: it is left alone"
        open_in = [f"{one.topic}-{one.number}" for one in directory.partitions
                   if one.open_transactions]  # fmt: skip
        if open_in:
            yield (
                f"transactions were open in {some(open_in)}: who reads committed records only "
                "waits there until they are ended"
            )


def some(names: Iterable[str]) -> str:
    """Join the first few names, and say how many follow."""
    names = list(names)
    shown = ", ".join(islice(names, _NAMES_SHOWN_MAX))
    more = len(names) - _NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, word: str) -> str:
    """Say how many there are of something."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _entity(entity: tuple[tuple[str, str | None], ...]) -> str:
    return " ".join(f"{kind} {name or 'by default'}" for kind, name in entity)
