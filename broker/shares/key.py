"""The key of share groups' state: a share-partition, which is a group and a topic's partition."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from odradek.protocol.wire import encode_uuid

_UUID_CHARACTERS = 22
_UUID_BYTES = 16
_INT32 = range(-(2**31), 2**31)


class SharePartitionKey(NamedTuple):
    """A share-partition; requests of FindCoordinator contain its name."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def name(self) -> str:
        """The name, whose hash selects the partition of __share_group_state."""
        return f"{self.group_id}:{encode_uuid(self.topic_id)}:{self.partition}"

    @staticmethod
    def parse(name: str) -> SharePartitionKey:
        """Parse a name; the group's id may contain colons. Raises ValueError."""
        group_id, topic_id, partition = name.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError("GroupId must not be empty")
        number = int(partition)
        if number not in _INT32:
            raise ValueError(f"Invalid partition: {partition}")
        return SharePartitionKey(group_id, _decode_uuid(topic_id), number)


def _decode_uuid(text: str) -> bytes:
    if len(text) > _UUID_CHARACTERS + 2:  # Kafka allows padding.
        raise ValueError(f"Invalid topic ID: {text}")
    try:
        value = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"Invalid topic ID: {text}") from error
    if len(value) != _UUID_BYTES:
        raise ValueError(f"Invalid topic ID: {text}")
    return value
