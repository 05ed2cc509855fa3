"""Frames that are no request, or not quite one: each has a name, and bytes for both brokers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

from odradek.broker.api_table import APIS
from odradek.protocol.frames import SIZE, encode_request
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.schema import info_of
from tests.differential.answers import Pairs
from tests.differential.drawing import Drawing
from tests.differential.wire import CLIENT_ID
from tests.differential.world import World

# Keys that clients of Kafka 4.3 do not find there either: gone, or between brokers only.
NO_APIS = (-32768, -1, 4, 5, 6, 7, 93, 94, 1_000, 32767)
# Not cut up: what might take a while, what might ask for transactions, for which Kafka makes a
# topic of its own, what might make Kafka forget its only broker or raise its features, and what
# depends on lost connections, of which Kafka takes note a little later.
_STEADY = frozenset(
    (
        *("Produce", "JoinGroup", "SyncGroup", "Fetch", "FindCoordinator", "InitProducerId"),
        *("UnregisterBroker", "UpdateFeatures", "GetTelemetrySubscriptions", "PushTelemetry"),
    )
)

# Around a change: what the brokers call by ids of their own stays whole, or what comes of it could
# not be compared.
_ID_SIZE_MAX = 60

# What only bytes tell: an API's name or a label, a version, the frame for ours and for Kafka.
Wrong = tuple[str, int, bytes, bytes]


def outside_the_table() -> Iterator[Wrong]:
    """Yield requests for APIs and versions that are not there."""
    for key in NO_APIS:
        for version in (0, 1, -1):
            yield _alike(f"key {key}", version, _framed(key, version, b"\0\0\0\0"))
    for api in APIS:
        below = [-32768, -1, *range(message_classes(api.name)[0].__message__.versions.first)]
        for version in (*below, api.last + 1, api.last + 2, 32767):
            if api.name != "Produce" or version > 2 or version < 0:
                yield _alike(api.name, version, _framed(api.key, version, b"\0" * 12))
    for version in (0, 1, 2):
        body = struct.pack(">hii", 1, 1_000, 0)
        yield _alike("Produce", version, _framed(0, version, body))


def broken(random: Random, world: World, pairs: Pairs) -> Iterator[Wrong]:
    """Yield requests of every API with a part cut off, changed or added."""
    for api in APIS:
        cls = message_classes(api.name)[0]
        if api.name in _STEADY:
            continue
        for version in info_of(cls).versions:
            request = Drawing(random, world).request(cls, version)
            ours, theirs = (
                encode_request(one, version, 1, "c")[SIZE.size :]
                for one in (request, pairs.for_kafka(request))
            )
            begin = 12 if version in info_of(cls).flexible else 11
            at = random.randrange(begin, len(ours)) if len(ours) > begin else begin
            added = random.randbytes(random.choice((1, 3)))
            # No part of a character of several bytes: what Kafka does with text that is no UTF-8
            # stands in the list of differences.
            byte = random.choice(b"\0\1\x7f").to_bytes(1, "big")
            if at < len(ours) and ours[at] >= 0x80:
                byte = ours[at : at + 1]
            yield api.name, version, _sized(ours + added), _sized(theirs + added)
            near = slice(max(at - _ID_SIZE_MAX, 0), at + _ID_SIZE_MAX)
            if len(ours) == len(theirs) and ours[near] == theirs[near]:
                yield api.name, version, _sized(ours[:at]), _sized(theirs[:at])
                changed = ours[:at] + byte + ours[at + 1 :]
                other = theirs[:at] + byte + theirs[at + 1 :]
                yield api.name, version, _sized(changed), _sized(other)


def malformed() -> Iterator[Wrong]:
    """Yield frames whose sizes or headers no client would write."""
    for size in (-1, -(2**31), 2**31 - 1, 104_857_601):
        yield _alike(f"a size of {size}", 0, SIZE.pack(size) + b"\0" * 8)
    head = b"\0\x12\0\0\0\0\0\1"
    for size in (0, 1, 2, 4, 8):
        yield _alike(f"the {size} first bytes of a header", 0, _sized(head[:size]))
    yield _alike("half a client id's size", 0, _sized(head + b"\0"))
    for name in (b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\0\0", b"\0\1\xff"):
        yield _alike("ApiVersions", 0, _sized(head + name))
        yield _alike("Metadata", 1, _sized(struct.pack(">hhi", 3, 1, 1) + name + b"\0\0\0\0"))
    metadata = encode_request(MetadataRequest(topics=[]), 12, 1, CLIENT_ID)[SIZE.size :]
    versions = encode_request(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 1, CLIENT_ID
    )[SIZE.size :]
    at = 10 + len(CLIENT_ID)
    for tags in (
        b"\1\0\0",
        b"\1\x09\3abc",
        b"\2\1\1a\2\1b",
        b"\2\2\1a\1\1b",
        b"\2\1\1a\1\1b",
        b"\1\0\x7f",
        b"\x7f",
        b"\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x0f",
        b"\1\0\xff\xff\xff\xff\x0f",
    ):
        yield _alike("Metadata", 12, _sized(metadata[:at] + tags + metadata[at + 1 :]))
        yield _alike("Metadata", 12, _sized(metadata[:-1] + tags))
        yield _alike("ApiVersions", 3, _sized(versions[:at] + tags + versions[at + 1 :]))
        yield _alike("ApiVersions", 3, _sized(versions[:-1] + tags))
    for size in (32_767, 32_768):
        deletion = DeleteGroupsRequest(groups_names=["x" * size])
        yield _alike("DeleteGroups", 2, encode_request(deletion, 2, 1, CLIENT_ID))
    for name in (b"\xff", b"a\xc3", b"\xed\xa0\x80"):  # no UTF-8
        body = struct.pack(">hhihih", 42, 0, 1, -1, 1, len(name)) + name
        yield _alike("DeleteGroups", 0, _sized(body))


def _alike(name: str, version: int, frame: bytes) -> Wrong:
    return name, version, frame, frame


def _framed(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID.encode()
    return _sized(head + body)


def _sized(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body
