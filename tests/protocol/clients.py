"""The record codecs of two Python clients, as independent readers and writers of batches."""

from __future__ import annotations

import warnings
from types import ModuleType

import aiokafka.codec
import aiokafka.record.default_records

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function of importlib that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records

from odradek.protocol.compression import Codec

# Each client's codec functions, and its DefaultRecordBatch and builder.
CLIENTS: dict[str, tuple[ModuleType, ModuleType]] = {
    "aiokafka": (aiokafka.codec, aiokafka.record.default_records),
    "kafka-python": (kafka.codec, kafka.record.default_records),
}


def has_codec(client: str, codec: Codec) -> bool:
    """Return whether the library that the client needs for the codec is installed."""
    if codec == Codec.NONE:
        return True
    return bool(getattr(CLIENTS[client][0], f"has_{codec.label}")())


CLIENT_CODECS = [
    (client, codec) for client in CLIENTS for codec in Codec if has_codec(client, codec)
]
