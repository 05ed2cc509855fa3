"""Ids that Kafka calls Uuid: 16 bytes, printed as 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import random
import uuid

# org.apache.kafka.common.Uuid: zero means "none", one is Kafka's own metadata topic.
_RESERVED = (bytes(16), bytes(15) + b"\x01")


def random_id(source: random.Random) -> bytes:
    """Make a random id (UUID version 4) that is not reserved.

    None begins with "-" when printed: on a command line it would look like an option
    (Uuid.randomUuid).
    """
    while True:
        made = uuid.UUID(int=source.getrandbits(128), version=4).bytes
        if made not in _RESERVED and not encode_id(made).startswith("-"):
            return made


def encode_id(value: bytes) -> str:
    """Print an id as Kafka does."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
