"""Describes the parts of a Kafka cluster that are not taken over, so that none goes unnoticed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from odradek.broker.adoption.groups import GroupCounts
from odradek.broker.adoption.image import ClusterImage
from odradek.broker.adoption.quotas import strange_quotas
from odradek.broker.adoption.survey import FoundDirectory
from odradek.broker.adoption.users import strange_users
from odradek.broker.metadata.store import ResourceType

_NAMES_SHOWN_MAX = 5
_OWNERS = {
    int(ResourceType.BROKER): "broker",
    int(ResourceType.BROKER_LOGGER): "the loggers of broker",
    int(ResourceType.CLIENT_METRICS): "client metrics",
    int(ResourceType.GROUP): "group",
}


def left_behind(image: ClusterImage, node_id: int) -> Iterator[tuple[str, str]]:
    """Iterate over the parts of the metadata that are not taken over, each with a note on it."""
    users = strange_users(image)
    if users:
        note = f"of {some(users)}; Odradek does not know their mechanism"
        yield counted(len(users), "SCRAM credential"), note
    if image.tokens:
        yield counted(len(image.tokens), "delegation token"), "no client can use them"
    quotas = strange_quotas(image)
    if quotas:
        note = some(f"{key} of {_entity(entity)}" for entity, key in quotas)
        yield counted(len(quotas), "client quota"), f"{note}; Odradek does not know their kind"
    ours = {(ResourceType.BROKER, ""), (ResourceType.BROKER, str(node_id))}
    for (kind, name), settings in sorted(image.configs.items()):
        if settings and kind != ResourceType.TOPIC and (kind, name) not in ours:
            owner = _OWNERS.get(kind, f"resource of type {kind}")
            yield f"settings of {owner} {name}", some(sorted(settings))
    levels = [f"{name}={level}" for name, level in sorted(image.features.items()) if level]
    if levels:
        yield "feature levels", f"{', '.join(levels)}; Odradek has its own"


def left_of_groups(groups: GroupCounts) -> Iterator[tuple[str, str]]:
    """Iterate over the kinds of groups of which some state is not taken over, each with a note."""
    kept = {
        "consumer": "their offsets are kept, and their members join again",
        "share": "the state of unacknowledged records is left behind",
        "streams": "their offsets are kept, and their members join again",
    }
    for kind, note in kept.items():
        names = groups.by_type.get(kind, ())
        if names:
            yield counted(len(names), f"{kind} group"), f"{some(names)}; {note}"


def remarks(
    image: ClusterImage,
    taken: Container[bytes],
    directories: Sequence[FoundDirectory],
    torn_bytes: int,
) -> Iterator[str]:
    """Iterate over the remarks that an operator should read before the data is served.

    `taken` has the ids of the topics that are taken over.
    """
    copies = [
        topic.name
        for topic in image.topics.values()
        if topic.topic_id in taken
        and any(len(one.replicas) > 1 for one in topic.partitions.values())
    ]
    if copies:
        yield (
            f"{some(sorted(copies))}: other brokers have replicas, which get no more updates. "
            "Make sure that no other broker of the cluster still runs"
        )
    if len(image.controllers) > 1:
        yield (
            f"{len(image.controllers)} controllers shared this metadata: unless this copy is from "
            "the last controller to lead, the latest changes may be missing"
        )
    if torn_bytes:
        yield (
            f"the metadata log ends with {torn_bytes} bytes of an incomplete batch, as after a "
            "crash: they are ignored"
        )
    for directory in directories:
        for name in directory.leftovers:
            yield f"{directory.path / name} was not finished by Kafka: it is left as it is"
        open_in = [f"{one.topic}-{one.number}" for one in directory.partitions
                   if one.open_transactions]  # fmt: skip
        if open_in:
            yield (
                f"transactions were open in {some(open_in)}: read_committed consumers wait there "
                "until these transactions end"
            )


def some(names: Iterable[str]) -> str:
    """Join the first few names, and append the number of the others."""
    names = list(names)
    shown = ", ".join(islice(names, _NAMES_SHOWN_MAX))
    more = len(names) - _NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, word: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _entity(entity: tuple[tuple[str, str | None], ...]) -> str:
    return " ".join(f"{kind} {name or 'by default'}" for kind, name in entity)
