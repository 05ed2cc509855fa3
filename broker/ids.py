"""Ids that Kafka calls Uuid: 16 bytes, printed as 22 characters of URL-safe base64."""

from __future__ import annotations

import random
import uuid

from odradek.protocol.wire import encode_uuid

Partition = tuple[bytes, int]
"""A topic's id and the number of a partition."""

# org.apache.kafka.common.Uuid: zero means "none", one is Kafka's own metadata topic.
_RESERVED = (bytes(16), bytes(15) + b"\x01")


def random_id(source: random.Random) -> bytes:
    """Return a random id (UUID version 4) that is not reserved.

    No id begins with "-" when printed: on a command line it would look like an option
    (Uuid.randomUuid).
    """
    while True:
        made = uuid.UUID(int=source.getrandbits(128), version=4).bytes
        if not is_reserved(made) and not encode_uuid(made).startswith("-"):
            return made


def is_reserved(one: bytes) -> bool:
    """Return whether no topic can have an id."""
    return one in _RESERVED
