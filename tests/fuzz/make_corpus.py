"""Writes the fuzzer's corpus: `python -m tests.fuzz.make_corpus DIRECTORY [FOUND]`.

One directory a target. Seeds are made from the declarations; what a fuzzer has FOUND is added
where it reaches lines that nothing smaller reaches. tests/fuzz/corpus was made so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import linecache
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from odradek.broker.api_table import APIS
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compiler import encode
from odradek.protocol.compression import Codec, compress
from odradek.protocol.messages import message_classes
from odradek.protocol.records_plain import encode_record
from odradek.protocol.schema import Field, fields_of, info_of
from tests.fuzz.targets import TARGETS, Target
from tests.protocol.legacy_messages import encode_entry, encode_wrapper

_OCTETS: dict[str, Any] = {
    "string": "ab",
    "bytes": b"cd",
    "records": b"ef",
    "uuid": b"0123456789abcdef",
}
_RECORDS = [
    Record(0, 1_000, b"k", b"value", (("h", b"1"), ("n", None))),
    Record(1, 1_001, None, b"v" * 70),
    Record(2, 999, b"k", None),
]
_KEY = {"kty": "RSA", "kid": "a", "alg": "RS256", "use": "sig", "e": "AQAB", "n": "w" * 342}
_HEADER = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"a"}').rstrip(b"=")
# Which of the readers of targets.logins() gets what.
_LOGIN_MESSAGES = [
    (0, b"n,,n=a=2Cb,r=nonce"),
    (0, b"n,a=other,n=alice,r=nonce,tokenauth=true,x=y"),
    (1, b"c=biws,r=nonce,x=y,p=" + base64.b64encode(bytes(32))),
    (2, b"alice\0alice\0secret"),
    (2, b"\0\0"),
    (2, b"\0alice\0"),
    (2, b"alice"),
    (3, b"n,a=b,\x01auth=Bearer abc\x01more=1\x01\x01"),
    (3, b"n,,\x01auth=Basic abc\x01\x01"),
    (4, _HEADER + b".e30.c2ln"),
    (4, b"e30.e30.c2ln"),
    (4, b"none"),
    (5, json.dumps({"keys": [_KEY, {"kty": "oct"}, 1, {**_KEY, "n": "!"}]}).encode()),
    (5, b'{"keys": []}'),
    (5, b"[]"),
    (5, b"{"),
]


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield the name of a target and an input for it, which is well formed."""
    for api in APIS:
        cls = message_classes(api.name)[0]
        for version in info_of(cls).versions:
            body = encode(_filled(cls, version), version)
            yield "request", bytes((api.key, version)) + body
            head = struct.pack(">hhih", api.key, version, 7, 2) + b"me"
            yield "frames", b"\x05" + struct.pack(">i", len(head)) + head
    for codec in Codec:
        batch = encode_batch(_RECORDS, codec=codec)
        yield "batches", batch + batch
        yield "compression", bytes((codec,)) + compress(codec, b"abcabcabc" * 30)
    for magic in (0, 1):
        yield "legacy", encode_entry(magic, _RECORDS[1])
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield "legacy", encode_wrapper(magic, codec, _RECORDS)
    for which, message in _LOGIN_MESSAGES:
        yield "logins", bytes((which,)) + message
    section = b"".join(
        encode_record(at, at - 1, one.key, one.value, one.headers)
        for at, one in enumerate(_RECORDS)
    )
    yield "kernels", struct.pack(">h?B", len(_RECORDS), True, 100) + section


def _filled(cls: type, version: int) -> Any:
    given = {}
    for field in fields_of(cls):
        if version in field.spec.versions:
            given[field.name] = [_one(field, version)] if field.is_array else _one(field, version)
    return cls(**given)


def _one(field: Field, version: int) -> Any:
    if field.struct is not None:
        return _filled(field.struct, version)
    assert field.primitive is not None
    return _OCTETS.get(field.primitive.name, 1)


def _keep(target: Target, inputs: list[bytes]) -> list[bytes]:
    """Return the inputs, smallest first, that reach a line which none before them has."""
    reached: set[tuple[str, str]] = set()
    new = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal new
        file, _, _ = frame.f_code.co_filename.partition(" v")  # all versions of a codec are one
        here = file, linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if here not in reached:
            reached.add(here)
            new = True
        return trace

    kept = []
    for data in sorted(inputs, key=lambda one: (len(one), one)):
        new = False
        sys.settrace(trace)
        try:
            target(data)
        finally:
            sys.settrace(None)
        if new:
            kept.append(data)
    return kept


def main() -> None:
    """Write each input into a file that is named by its content."""
    root, *found = map(Path, sys.argv[1:])
    for name, target in TARGETS.items():
        inputs = [data for owner, data in seeds() if owner == name]
        for directory in found:
            inputs += [path.read_bytes() for path in (directory / name).iterdir()]
        (root / name).mkdir(parents=True, exist_ok=True)
        for data in _keep(target, inputs) if found else inputs:
            (root / name / hashlib.sha1(data).hexdigest()[:12]).write_bytes(data)


if __name__ == "__main__":
    main()
