"""Takes over the access control entries of Kafka's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.broker.adoption.image import ClusterImage
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.protocol.messages.metadata_records import AccessControlEntryRecord


def adopted_acls(image: ClusterImage) -> list[Acl]:
    """Return the entries that Odradek understands."""
    return [acl for acl in map(_acl, image.acls.values()) if not _is_strange(acl)]


def strange_acls(image: ClusterImage) -> Iterator[str]:
    """Iterate over the problems of other entries: a later Kafka's, which could be denials."""
    for record in image.acls.values():
        if _is_strange(_acl(record)):
            yield (
                f"the ACL for {record.principal} on {record.resource_name!r} has a code that "
                "Odradek does not know: remove it while Kafka runs (kafka-acls)"
            )


def principals_of(acls: Iterable[Acl]) -> list[str]:
    """Return the principals of entries, each once."""
    return sorted({acl.principal for acl in acls})


def _acl(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        ResourceKind(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        AclOperation(record.operation),
        Permission(record.permission_type),
    )


def _is_strange(acl: Acl) -> bool:
    return acl.is_vague or 0 in (acl.kind, acl.pattern, acl.operation, acl.permission)
