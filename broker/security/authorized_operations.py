"""The operations that a client may perform on a resource, as the bit field in responses.

Bit n stands for the operation of code n (AclOperation). Without an authorizer, every client may
perform all operations that a resource supports (AclEntry.supportedOperations, AuthHelper).
"""

from __future__ import annotations

from odradek.broker.security.authorization import AclOperation


def bit_field(*operations: AclOperation) -> int:
    """Return the bit field with a set of operations."""
    return sum(1 << operation for operation in set(operations))


OF_TOPIC = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
OF_GROUP = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
OF_CLUSTER = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
ALL_OF_TOPIC = bit_field(*OF_TOPIC)
ALL_OF_GROUP = bit_field(*OF_GROUP)
ALL_OF_CLUSTER = bit_field(*OF_CLUSTER)
