"""A field is added to a message of a descriptor set, which is otherwise left as it is."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.descriptors import add_repeated_field
from odradek.pipeline.errors import PipelineError

pytestmark = pytest.mark.spark

LAST_NUMBER = 2**29 - 1


def described(package: str, *numbers: int) -> descriptor_pb2.FileDescriptorSet:
    """Describe a message Ticket with a field for each number, and one beside it."""
    described = descriptor_pb2.FileDescriptorSet()
    file = described.file.add(name="ticket.proto", package=package, syntax="proto3")
    ticket = file.message_type.add(name="Ticket")
    for number in numbers:
        ticket.field.add(
            name=f"field_{number}",
            number=number,
            type=FieldDescriptorProto.TYPE_INT64,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    file.message_type.add(name="Account")
    return described


@pytest.mark.parametrize(
    ("package", "message"), [("", "Ticket"), ("a.b", "Ticket"), ("a.b", "a.b.Ticket")]
)
def test_bytes_of_the_message_are_read_as_before_and_the_field_is_empty(
    package: str, message: str
) -> None:
    before = described(package, 1, LAST_NUMBER)
    after = descriptor_pb2.FileDescriptorSet.FromString(
        add_repeated_field(before.SerializeToString(), message, "_mark")
    )
    pool = DescriptorPool()
    pool.Add(after.file[0])
    ticket = GetMessageClass(pool.FindMessageTypeByName(f"{package}.Ticket".lstrip(".")))
    read = ticket.FromString(b"\x08\x07")
    assert read.field_1 == 7
    assert list(read._mark) == []
    del after.file[0].message_type[0].field[-1]
    assert after == before


@pytest.mark.parametrize(
    ("descriptor_set", "message", "message_of_error"),
    [
        (b"\xff\xff", "Ticket", "protoc --include_imports"),
        (b"", "Ticket", "--schema has no message Ticket: it has none"),
        (
            described("a").SerializeToString(),
            "Tickets",
            "no message Tickets: it has Account, Ticket, a.Account, a.Ticket",
        ),
    ],
)
def test_a_descriptor_set_without_the_message_is_refused(
    descriptor_set: bytes, message: str, message_of_error: str
) -> None:
    with pytest.raises(PipelineError, match=message_of_error):
        add_repeated_field(descriptor_set, message, "_mark")
