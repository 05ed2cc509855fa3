"""The messages of Kafka's protocol: one API per module, request and response, every version."""

from __future__ import annotations

import importlib
import re

# The authorized operations in a response to a request without them (KIP-430).
AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


def message_classes(name: str) -> list[type]:
    """Return the declared messages of an API ("Fetch", "ApiVersions"), request first."""
    module = importlib.import_module(f"odradek.protocol.messages.{snake_case(name)}")
    made = [cls for cls in vars(module).values() if hasattr(cls, "__message__")]
    return [cls for cls in made if cls.__module__ == module.__name__]


def snake_case(name: str) -> str:
    """Turn Kafka's CamelCase names into our modules' names: "ListOffsets" into "list_offsets"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
