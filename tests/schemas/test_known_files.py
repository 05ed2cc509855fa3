"""Schemas of Protobuf import files that no registry has: serializers bring them along."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as former_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.type import money_pb2

from odradek.schemas import known_files
from odradek.schemas.known_files import CONFLUENTS
from odradek.schemas.protobuf_records import ProtobufCodec

SCHEMA = """
syntax = "proto3";
package shop;
import "google/type/money.proto";
import "google/type/datetime.proto";
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
message Order {
  option (confluent.message_meta).doc = "a purchase";
  google.type.Money price = 1 [(confluent.field_meta).tags = "PII"];
  confluent.type.Decimal weight = 2;
}
"""
THEIRS = {
    one.DESCRIPTOR.name: one.DESCRIPTOR
    for one in (meta_pb2, decimal_pb2, variant_pb2, former_pb2)
}


def described(file: FileDescriptor) -> descriptor_pb2.FileDescriptorProto:
    """Return a file as data, without options of compilers and names that follow by a rule."""
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    found.ClearField("options")
    messages = list(found.message_type)
    for message in messages:
        messages += message.nested_type
    for field in [*found.extension, *(field for one in messages for field in one.field)]:
        field.ClearField("json_name")
    return found


@pytest.mark.parametrize("name", CONFLUENTS)
def test_a_file_is_that_of_confluents_own_client(name: str) -> None:
    codec = ProtobufCodec(f'syntax = "proto3"; import "{name}"; message One {{}}', {})
    assert described(codec._pool.FindFileByName(name)) == described(THEIRS[name])


def test_all_files_of_confluents_client_are_known() -> None:
    assert set(CONFLUENTS) == set(THEIRS)


@pytest.mark.parametrize("package", ["grpc_tools", "google.type"])
def test_a_package_that_is_missing_is_no_mistake_of_the_schema(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = known_files.find_spec
    monkeypatch.setattr(known_files, "find_spec", lambda name: name != package and find(name))
    with pytest.raises(ImportError, match=package):
        ProtobufCodec('syntax = "proto3"; message One {}', {})


def test_a_message_with_types_of_both_is_read_and_written() -> None:
    codec = ProtobufCodec(SCHEMA, {})
    price = money_pb2.Money(currency_code="EUR", units=3).SerializeToString()
    octets = b"\x00\x0a" + bytes([len(price)]) + price + b"\x12\x05\x0a\x01\x0f\x18\x01"
    data = codec.decode(octets)
    assert data == {
        "price": {"currency_code": "EUR", "units": "3"}, "weight": {"value": "Dw==", "scale": 1},
    }  # fmt: skip
    assert codec.encode(data, None) == octets
