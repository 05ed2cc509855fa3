"""The operations that a client may perform on a resource, as the bit field in responses.

Bit n stands for the operation of code n (AclOperation). Without an authorizer, every client may
perform all operations that a resource supports (AclEntry.supportedOperations, AuthHelper).
"""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """An operation that an ACL allows or denies, by its code in the protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


def bit_field(*operations: Operation) -> int:
    """Return the bit field with a set of operations."""
    return sum(1 << operation for operation in set(operations))


OF_TOPIC = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
OF_GROUP = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
OF_CLUSTER = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
ALL_OF_TOPIC = bit_field(*OF_TOPIC)
ALL_OF_GROUP = bit_field(*OF_GROUP)
ALL_OF_CLUSTER = bit_field(*OF_CLUSTER)
